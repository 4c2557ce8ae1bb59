// What jobs can run on.
import { html, useEffect } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { buildAddress, replaceQuery, route } from "../lib/router.js";
import { findOwnNamespace, session } from "../lib/session.js";
import { Empty, Given, Loading, Problem } from "../parts/basics.js";

/** @typedef {import("../api.js").Runtime} Runtime */

export function RuntimesPage() {
  const namespace = route.value.query.get("ns") || findOwnNamespace();
  const { value, problem, isLoading } = useLoaded((signal) => get("runtimes", { namespace }, signal), [namespace]);
  useEffect(() => {
    document.title = `${t("page.runtimes")} · Trainmaster`;
  });
  const { namespaces } = session.value;
  return html`<h1>${t("page.runtimes")}</h1>
    ${namespaces.length > 1 ? html`<form class="filters"><select value=${namespace} aria-label=${t("column.namespace")} onChange=${(/** @type {any} */ event) => replaceQuery({ ns: event.target.value })}>
      ${namespaces.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select></form>` : null}
    <${Problem} problem=${problem} />
    ${value ? html`<${List} runtimes=${value.items} />` : isLoading ? html`<${Loading} />` : null}`;
}

/** @param {{runtimes: Runtime[]}} props */
function List({ runtimes }) {
  if (!runtimes.length) return html`<${Empty}>${t("runtimes.none")}<//>`;
  return html`<div class="wide-table" tabindex="0" role="region" aria-label=${t("page.runtimes")}><table>
    <thead><tr><th scope="col">${t("column.name")}</th><th scope="col">${t("runtime.scope")}</th><th scope="col">${t("fact.framework")}</th>
      <th scope="col">${t("runtime.policy")}</th><th scope="col" class="numeric">${t("column.nodes")}</th><th scope="col" class="numeric">${t("runtime.restarts")}</th></tr></thead>
    <tbody>${runtimes.map((runtime) => html`<tr key=${`${runtime.namespace ?? ""}/${runtime.name}`}>
      <td><a class="name" href=${buildAddress(["runtime", runtime.name], { kind: runtime.kind, ns: runtime.namespace })}><${Given} text=${runtime.name} /></a></td>
      <td>${runtime.namespace ?? html`<span class="quiet">${t("runtime.everybody")}</span>`}</td>
      <td>${runtime.framework ?? "–"}</td><td>${runtime.policy ?? "–"}</td>
      <td class="numeric">${runtime.nodes ?? "–"}</td><td class="numeric">${runtime.max_restarts}</td>
    </tr>`)}</tbody>
  </table></div>`;
}
