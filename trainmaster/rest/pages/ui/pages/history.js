// Jobs that have ended or were deleted, the newest first, in pages.
import { html, useEffect, useState } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { useLoaded } from "../lib/load.js";
import { replaceQuery, route } from "../lib/router.js";
import { findOwnNamespace, session } from "../lib/session.js";
import { showProblem } from "../lib/toasts.js";
import { Age, Choice, Empty, Given, Loading, Problem, Span, State } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";

/** @typedef {import("../api.js").RecordSummary} RecordSummary */

const PAGE = 100;

export function HistoryPage() {
  const { query } = route.value;
  const namespace = query.get("ns") || findOwnNamespace();
  const wanted = { namespace, name: query.get("name"), state: query.get("state"), deleted: query.get("deleted"), limit: PAGE };
  const key = JSON.stringify(wanted);
  const first = useLoaded((signal) => get("history", wanted, signal), [key]);
  useEffect(() => {
    document.title = `${t("page.history")} · Trainmaster`;
  });
  return html`<h1>${t("page.history")}</h1>
    <${Filters} namespace=${namespace} />
    <${Problem} problem=${first.problem} />
    ${first.value ? html`<${Records} key=${key} first=${first.value} wanted=${wanted} />` : first.isLoading ? html`<${Loading} />` : null}`;
}

/** @param {{namespace: string}} props */
function Filters({ namespace }) {
  const { query } = route.value;
  const state = query.get("state") ?? "";
  const name = query.get("name") ?? "";
  const [typed, setTyped] = useState(name);
  useEffect(() => {
    if (typed === name) return undefined;
    const timer = setTimeout(() => replaceQuery({ name: typed }), 250);
    return () => clearTimeout(timer);
  }, [typed]);
  /** @type {[string, string][]} */
  const states = [["", t("history.all")], ...["Complete", "Failed", "Deleted"].map((one) => /** @type {[string, string]} */ ([one, t(`state.${one}`)]))];
  const known = session.value.namespaces;
  const namespaces = known.includes(namespace) ? known : [namespace, ...known];
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <span class="search"><${Icon} name="search" /><input type="search" value=${typed} placeholder=${t("history.name")} aria-label=${t("history.name")} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} /></span>
    <${Choice} label=${t("column.state")} value=${state} choices=${states} onChoose=${(/** @type {string} */ value) => replaceQuery({ state: value })} />
    ${namespaces.length > 1 ? html`<select value=${namespace} aria-label=${t("column.namespace")} onChange=${(/** @type {any} */ event) => replaceQuery({ ns: event.target.value })}>
      ${namespaces.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select>` : null}
    <label class="check"><input type="checkbox" checked=${query.get("deleted") === "true"} onChange=${(/** @type {any} */ event) => replaceQuery({ deleted: event.target.checked ? "true" : null })} />${t("history.deleted")}</label>
  </form>`;
}

/**
 * @param {object} props
 * @param {{items: RecordSummary[], continue: string | null}} props.first
 * @param {import("../lib/api.js").Query} props.wanted
 */
function Records({ first, wanted }) {
  const [later, setLater] = useState(/** @type {RecordSummary[]} */ ([]));
  const [next, setNext] = useState(first.continue);
  const [isBusy, setBusy] = useState(false);
  const records = [...first.items, ...later];
  const load = async () => {
    setBusy(true);
    try {
      const page = await get("history", { ...wanted, continue: next });
      setLater([...later, ...page.items]);
      setNext(page.continue);
    } catch (error) {
      showProblem(error);
    } finally {
      setBusy(false);
    }
  };
  if (!records.length) return html`<${Empty}>${t("history.none")}<//>`;
  return html`
    <div class="wide-table" tabindex="0" role="region" aria-label=${t("page.history")}><table>
      <thead><tr><th scope="col">${t("column.state")}</th><th scope="col">${t("column.name")}</th><th scope="col">${t("column.runtime")}</th>
        <th scope="col" class="numeric">${t("column.ended")}</th><th scope="col" class="numeric">${t("column.duration")}</th><th scope="col">${t("history.deletion")}</th></tr></thead>
      <tbody>${records.map((record) => html`<${Record} key=${record.uid} record=${record} />`)}</tbody>
    </table></div>
    ${next ? html`<p><button type="button" disabled=${isBusy} onClick=${load}>${t("history.more")}</button></p>` : null}`;
}

/** @param {{record: RecordSummary}} props */
function Record({ record }) {
  return html`<tr>
    <td><${State} state=${record.state} /></td>
    <td><a class="name" href=${buildJobAddress(record)}><${Given} text=${record.name} /></a>${record.kind === "TrainJob" ? null : html` <span class="quiet">${record.kind}</span>`}</td>
    <td><${Given} text=${record.runtime} /></td>
    <td class="numeric"><${Age} time=${record.completed_at ?? record.deleted_at} /></td>
    <td class="numeric"><${Span} from=${record.created_at} to=${record.completed_at ?? record.deleted_at} /></td>
    <td>${record.deleted_at ? html`<${Age} time=${record.deleted_at} /> <span class="quiet"><${Given} text=${record.deleted_by} /></span>` : html`<span class="quiet">–</span>`}</td>
  </tr>`;
}
