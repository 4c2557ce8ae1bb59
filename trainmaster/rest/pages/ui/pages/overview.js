// What matters now: how many jobs are in which state, what runs, what waits and why, what failed last, and the quota.
import { html, useEffect, useMemo, useState } from "../html.js";
import { ApiProblem, get } from "../lib/api.js";
import { formatNumber, t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { countStates, JobRows, STATES } from "../lib/job_rows.js";
import { useLoaded } from "../lib/load.js";
import { toVisible } from "../lib/log_text.js";
import { takeMachine } from "../lib/machine.js";
import { mayManageTenants, refreshMe, session } from "../lib/session.js";
import { useStream } from "../lib/stream.js";
import { Age, Empty, Given, Loading, Problem, Progress, Reason } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { Totals } from "../parts/machine.js";
import { Quota } from "../parts/quota.js";

/** @typedef {import("../lib/job_rows.js").JobRow} JobRow */
/** @typedef {import("../lib/machine.js").Followed} Followed */

const SHOWN = 8;
const FAILURES = 4;
/** Use changes while somebody looks. */
const QUOTA_MS = 10_000;

export function OverviewPage() {
  const rows = useMemo(() => new JobRows(), []);
  const [{ machine }, setMachine] = useState(/** @type {Followed} */ ({ machine: null, problem: null }));
  useStream(mayManageTenants() ? ["jobs", "machine"] : ["jobs"], {}, {
    onBegin: () => rows.begin(),
    onEvent: (event, data) => (data.topic === "machine" ? setMachine((before) => takeMachine(before, event, data)) : rows.take(event, data)),
  });
  useEffect(() => {
    document.title = `${t("page.overview")} · Trainmaster`;
  });
  const version = rows.version.value;
  const all = useMemo(() => rows.list(), [version]);
  const counts = useMemo(() => countStates(all), [all]);
  if (!rows.isComplete.value && !all.length) return html`<${Loading} />`;
  return html`<h1 class="unseen">${t("page.overview")}</h1>
    <${Problem} problem=${rows.problem.value} />
    <ul class="counts">
      ${STATES.filter((state) => state !== "Deleting" || counts[state]).map((state) => html`<${Count} key=${state} state=${state} count=${counts[state] ?? 0} />`)}
    </ul>
    <div class="columns-2">
      <div>
        <${Waiting} rows=${all} />
        <${Running} rows=${all} />
      </div>
      <div>
        <${Failures} rows=${all} />
        <${Machine} nodes=${machine?.nodes ?? []} />
        <${OwnQuota} />
      </div>
    </div>`;
}

/** @param {{nodes: import("../lib/machine.js").NodeDetail[]}} props */
function Machine({ nodes }) {
  if (!nodes.length) return null;
  return html`<section>
    <h2>${t("machine.taken")}</h2>
    <${Totals} nodes=${nodes} />
    <p><a href="#/nodes">${t("machine.nodes")}</a></p>
  </section>`;
}

/** @param {{state: string, count: number}} props */
function Count({ state, count }) {
  return html`<li class=${count ? `state-${state}` : "none"}><a href=${state === "Deleting" ? "#/jobs" : `#/jobs?state=${state}`}>
    <b>${formatNumber(count)}</b><span><${Icon} name=${state} />${t(`state.${state}`)}</span>
  </a></li>`;
}

/** @param {{rows: JobRow[]}} props */
function Waiting({ rows }) {
  const waiting = rows.filter((row) => row.state === "Pending" && !row.deleting).sort(byAge);
  return html`<section>
    <h2>${t("overview.waiting")}</h2>
    ${waiting.length ? html`<ul class="list">${waiting.slice(0, SHOWN).map((row) => html`<li key=${row.uid}>
      <div class="line-1"><${JobLink} row=${row} /><${Age} time=${row.created_at} /></div>
      <div class="line-2"><${Reason} reason=${row.reason} />${row.message ? html`: <${Given} text=${row.message} />` : null}</div>
    </li>`)}</ul>` : html`<${Empty}>${t("overview.waiting.none")}<//>`}
    <${More} count=${waiting.length - SHOWN} state="Pending" />
  </section>`;
}

/** @param {{rows: JobRow[]}} props */
function Running({ rows }) {
  const running = rows.filter((row) => row.state === "Running" && !row.deleting).sort(byAge).reverse();
  return html`<section>
    <h2>${t("overview.running")}</h2>
    ${running.length ? html`<ul class="list">${running.slice(0, SHOWN).map((row) => html`<li key=${row.uid}>
      <div class="line-1"><${JobLink} row=${row} />${row.percent === null ? html`<${Age} time=${row.created_at} />` : html`<${Progress} percent=${row.percent} label=${row.name} />`}</div>
    </li>`)}</ul>` : html`<${Empty}>${t("overview.running.none")}<//>`}
    <${More} count=${running.length - SHOWN} state="Running" />
  </section>`;
}

/** @param {{count: number, state: string}} props */
function More({ count, state }) {
  return count > 0 ? html`<p><a href=${`#/jobs?state=${state}`}>${t("overview.more", { n: count })}</a></p>` : null;
}

/** @param {{row: {namespace: string, name: string, uid: string, kind: string}}} props */
function JobLink({ row }) {
  return html`<a class="name" href=${buildJobAddress(row)}><span class="quiet">${row.namespace}/</span><${Given} text=${row.name} /></a>`;
}

/** @param {JobRow} one @param {JobRow} other */
function byAge(one, other) {
  return one.created_at < other.created_at ? -1 : 1;
}

/** @param {{rows: JobRow[]}} props */
function Failures({ rows }) {
  const failed = rows.filter((row) => row.state === "Failed").sort((one, other) => ((one.completed_at ?? "") < (other.completed_at ?? "") ? 1 : -1));
  const shown = failed.slice(0, FAILURES);
  return html`<section>
    <h2>${t("overview.failures")}</h2>
    ${shown.length ? html`<ul class="list">${shown.map((row) => html`<${Failure} key=${row.uid} row=${row} />`)}</ul>` : html`<${Empty}>${t("overview.failures.none")}<//>`}
    <${More} count=${failed.length - FAILURES} state="Failed" />
  </section>`;
}

/** @param {{row: JobRow}} props */
function Failure({ row }) {
  /** @param {AbortSignal} signal */
  const load = async (signal) => {
    try {
      return await get(`jobs/${encodeURIComponent(row.name)}`, { namespace: row.namespace, kind: row.kind }, signal);
    } catch (error) {
      // It may have been deleted meanwhile; the message of its row is enough.
      if (error instanceof ApiProblem && error.status === 404) return null;
      throw error;
    }
  };
  const { value } = useLoaded(load, [row.uid]);
  /** @type {import("../api.js").Verdict | null} */
  const verdict = value?.uid === row.uid ? value.verdict : null;
  return html`<li>
    <div class="line-1"><${JobLink} row=${row} /><${Age} time=${row.completed_at} /></div>
    <div class="line-2"><${Given} text=${verdict?.error || row.message} /></div>
    ${verdict?.last_words ? html`<pre class="tail" tabindex="0" aria-label=${t("verdict.words")}>${toVisible(verdict.last_words).trimEnd()}</pre>` : null}
  </li>`;
}

function OwnQuota() {
  const quota = session.value.me?.quota ?? [];
  useEffect(() => {
    if (!quota.length) return undefined;
    const timer = setInterval(() => document.hidden || refreshMe(), QUOTA_MS);
    return () => clearInterval(timer);
  }, [quota.length > 0]);
  if (!quota.length) return null;
  return html`<section><h2>${t("overview.quota")}</h2><${Quota} uses=${quota} /></section>`;
}
