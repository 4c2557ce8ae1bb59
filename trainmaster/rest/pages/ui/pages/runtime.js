// One runtime: what it offers, which jobs use it, and the object as YAML.
import { html, useEffect } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { useLoaded } from "../lib/load.js";
import { toVisible } from "../lib/log_text.js";
import { route } from "../lib/router.js";
import { Age, Copy, Empty, Given, Loading, Problem, State } from "../parts/basics.js";

/** @typedef {import("../api.js").RuntimeDetail} RuntimeDetail */
/** @typedef {import("../api.js").RuntimeUser} RuntimeUser */

const MOST_USERS = 20;

export function RuntimePage() {
  const { path, query } = route.value;
  const name = path[1] ?? "";
  const wanted = { namespace: query.get("ns"), kind: query.get("kind") };
  const { value, problem, isLoading } = useLoaded((signal) => get(`runtimes/${encodeURIComponent(name)}`, wanted, signal), [name, wanted.namespace, wanted.kind]);
  useEffect(() => {
    document.title = `${name} · Trainmaster`;
  });
  return html`<div class="head"><div class="title">
      <p class="crumbs"><a href="#/runtimes">${t("page.runtimes")}</a></p>
      <h1><${Given} text=${name} /></h1>
    </div></div>
    <${Problem} problem=${problem} />
    ${value ? html`<${Shown} runtime=${value} />` : isLoading ? html`<${Loading} />` : null}`;
}

/** @param {{runtime: RuntimeDetail}} props */
function Shown({ runtime }) {
  /** @type {[string, unknown][]} */
  const facts = [
    [t("runtime.scope"), runtime.namespace ?? t("runtime.everybody")],
    [t("fact.framework"), runtime.framework],
    [t("runtime.policy"), runtime.policy],
    [t("column.nodes"), runtime.nodes],
    [t("runtime.restarts"), runtime.max_restarts],
    [t("column.created"), html`<${Age} time=${runtime.created_at} />`],
  ];
  return html`
    <dl class="facts">${facts.filter(([, value]) => value !== null).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <div class="columns-2">
      <div>
        <${Users} runtime=${runtime} />
        <${Steps} runtime=${runtime} />
      </div>
      <section><div class="head"><h2>YAML</h2><${Copy} text=${runtime.yaml} /></div><pre class="tall" tabindex="0" aria-label="YAML">${toVisible(runtime.yaml)}</pre></section>
    </div>`;
}

/** @param {{runtime: RuntimeDetail}} props */
function Users({ runtime }) {
  const { users, active, ended } = runtime;
  const shown = users.slice(0, MOST_USERS);
  const hidden = active + ended - shown.length;
  return html`<section><h2>${t("runtime.users")}</h2>
    ${users.length ? html`<p class="quiet">${t("runtime.counts", { active, ended })}</p>` : html`<${Empty}>${t("runtime.unused")}<//>`}
    <ul class="list">${shown.map((user) => html`<li key=${user.uid}><div class="line-1">
      <a class="name" href=${buildJobAddress(user)}><span class="quiet">${user.namespace}/</span><${Given} text=${user.name} /></a><${State} state=${user.state} />
    </div></li>`)}</ul>
    ${hidden > 0 ? html`<p><a href=${`#/jobs?runtime=${encodeURIComponent(runtime.name)}`}>${t("overview.more", { n: hidden })}</a></p>` : null}
  </section>`;
}

/** @param {{runtime: RuntimeDetail}} props */
function Steps({ runtime }) {
  return html`<section><h2>${t("runtime.steps")}</h2><ul class="list">${runtime.steps.map((step) => html`<li key=${step.name}>
    <div class="line-1"><span class="name"><${Given} text=${step.name} /></span><span class="quiet">${step.step ?? ""}</span></div>
    ${step.image ? html`<div class="line-2"><code>${toVisible(step.image)}</code></div>` : null}
    ${step.depends_on.length ? html`<div class="line-2">${t("runtime.after", { names: step.depends_on.join(", ") })}</div>` : null}
  </li>`)}</ul></section>`;
}
