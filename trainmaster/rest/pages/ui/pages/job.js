// One job: what it does and why, how it failed, its ranks, logs and events. A deleted job's record fills the same page.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { buildCloneAddress, buildJobAddress, buildTopic } from "../lib/job_address.js";
import { getShownState } from "../lib/job_rows.js";
import { countAttempts, hasJobs, JobState } from "../lib/job_state.js";
import { lazy } from "../lib/lazy.js";
import { LogLines } from "../lib/log_lines.js";
import { TAIL_LINES } from "../lib/polling.js";
import { changeQuery, navigate, route } from "../lib/router.js";
import { hasAbility, isReadOnly } from "../lib/session.js";
import { useStream } from "../lib/stream.js";
import { showProblem } from "../lib/toasts.js";
import { UsageState } from "../lib/usage.js";
import { isApplicable, VERBS } from "../lib/verbs.js";
import { Empty, Given, Loading, Problem, State } from "../parts/basics.js";
import { Events } from "../parts/events.js";
import { Explanation } from "../parts/explanation.js";
import { Facts } from "../parts/job_facts.js";
import { LogView } from "../parts/log_view.js";
import { RecordActions } from "../parts/record_actions.js";
import { Verdict } from "../parts/verdict.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */
/** @typedef {{verb: import("../lib/verbs.js").Verb, job: JobDetail}} Asked what somebody wants to do to the job */

const TABS = ["logs", "ranks", "curves", "events", "outputs", "code", "manifest"];
/** The tabs that show what the ranks use now. */
const USING = ["ranks", "curves"];
const VerbDialog = lazy(() => import("../parts/verb_dialog.js").then((module) => module.VerbDialog));
const Ranks = lazy(() => import("../parts/ranks.js").then((module) => module.Ranks));
const Curves = lazy(() => import("../parts/curves.js").then((module) => module.loadCurves()));
const Outputs = lazy(() => import("../parts/outputs.js").then((m) => m.Outputs));
const Code = lazy(() => import("../parts/code.js").then((m) => m.Code));
const Manifest = lazy(() => import("../parts/manifest.js").then((m) => m.Manifest));

export function JobPage() {
  const [asked, setAsked] = useState(/** @type {Asked | null} */ (null));
  // The dialog is beside what is shown of the job: its result can be read when the job is gone.
  return html`<${Job} onAsk=${setAsked} />
    ${asked ? html`<${VerbDialog} key="verb" verb=${asked.verb} jobs=${[asked.job]} onClose=${() => setAsked(null)} />` : null}`;
}

/** @param {{onAsk: (asked: Asked) => void}} props */
function Job({ onAsk }) {
  const [, namespace = "", name = "", uid = ""] = route.value.path;
  const { query } = route.value;
  const kind = query.get("kind") ?? "";
  const job = useMemo(() => new JobState(namespace, uid), []);
  const lines = useMemo(() => new LogLines(), []);
  const usage = useMemo(() => new UsageState(), []);
  const tab = TABS.includes(query.get("tab") ?? "") ? (query.get("tab") ?? "") : "logs";
  const live = job.live.value;
  const record = job.record.value;
  const data = live ?? record;
  const source = useJobStream(job, lines, usage, { namespace, name, kind }, tab);
  useEffect(() => {
    document.title = `${name} · Trainmaster`;
  });
  useEffect(() => {
    if (live && !uid) navigate(buildJobAddress(live), { replace: true });
  }, [live?.uid]);
  if (!data) return job.problem.value ? html`<${NoJob} problem=${job.problem.value} name=${name} namespace=${namespace} />` : html`<${Loading} />`;
  const attempts = countAttempts(live, record);
  const isPast = data.state !== "Failed" && (data.verdict?.attempt ?? 0) < attempts - 1;
  return html`
    <${Head} data=${data} live=${live} onAsk=${onAsk} />
    <${Problem} problem=${job.problem.value} />
    <${Explanation} data=${data} live=${live} record=${record} />
    <${Verdict} verdict=${data.verdict} isPast=${isPast} hasJobs=${hasJobs(data.workers)} />
    <${Facts} data=${data} live=${live} record=${record} />
    <${Tabs} tab=${tab} ranks=${data.workers.length} events=${job.events.value.length} />
    ${tab === "logs" ? html`<${Logs} lines=${lines} source=${source} data=${data} record=${record} attempts=${attempts} />` : null}
    ${tab === "ranks" ? html`<${Ranks} data=${data} live=${live} record=${record} kind=${kind} usage=${usage} />` : null}
    ${tab === "curves" ? html`<${Curves} data=${data} live=${live} record=${record} kind=${kind} usage=${usage} />` : null}
    ${tab === "events" ? html`<${Events} events=${job.events.value} />` : null}
    ${tab === "outputs" ? html`<${Outputs} data=${data} live=${live} record=${record} kind=${kind} />` : null}
    ${tab === "code" ? html`<${Code} data=${data} live=${live} record=${record} kind=${kind} />` : null}
    ${tab === "manifest" ? html`<${Manifest} data=${data} live=${live} record=${record} kind=${kind} />` : null}
  `;
}

/**
 * One stream for the job and, while they are shown, its logs or what it uses.
 * @param {JobState} job
 * @param {LogLines} lines
 * @param {UsageState} usage
 * @param {{namespace: string, name: string, kind: string}} reference
 * @param {string} tab
 * @returns {import("../lib/log_lines.js").Source} where all lines are
 */
function useJobStream(job, lines, usage, reference, tab) {
  const { query } = route.value;
  const rank = query.get("rank") ?? "";
  const attempt = query.get("attempt") ?? "";
  const isPast = attempt !== "" && Number(attempt) < (job.live.value?.attempt ?? 0);
  const isGone = job.isGone.value;
  const jobTopic = buildTopic("job", reference);
  const logTopic = buildTopic("log", reference);
  const usageTopic = buildTopic("usage", reference);
  const isMeasured = USING.includes(tab) && !job.live.value?.completed_at && hasAbility("usage");
  const topics = isGone ? [] : [jobTopic, ...(tab === "logs" && !isPast ? [logTopic] : []), ...(isMeasured ? [usageTopic] : [])];
  const logQuery = { worker: rank, attempt, tail_lines: TAIL_LINES };
  // What the lines are; those that came live need not be read again when the job is gone.
  const shown = `${rank} ${attempt}`;
  const loaded = useRef("");
  useEffect(() => lines.clear(), [shown]);
  useStream(topics, tab === "logs" ? logQuery : {}, {
    onBegin: () => {
      job.begin();
      if (!topics.includes(logTopic)) return;
      lines.restart();
      loaded.current = shown;
    },
    onEvent: (event, data) => {
      if (data.topic === jobTopic) job.take(event, data);
      else if (data.topic === usageTopic) usage.take(event, data);
      else lines.take(event, data);
    },
  });
  const isKept = isGone || isPast;
  const hasRecord = job.record.value !== null;
  const path = isGone ? `history/${encodeURIComponent(job.uid)}/logs` : `jobs/${encodeURIComponent(reference.name)}/logs`;
  const source = { path, query: { namespace: reference.namespace, kind: isGone ? "" : reference.kind, worker: rank, attempt } };
  useEffect(() => {
    if (!isKept || tab !== "logs" || !job.uid || (isGone && !hasRecord)) return undefined;
    if (loaded.current === shown && job.wasLive && lines.entries.length) return undefined;
    loaded.current = shown;
    const controller = new AbortController();
    lines.source = source;
    lines.load(controller.signal).catch((error) => {
      if (controller.signal.aborted) return;
      lines.giveUp();
      showProblem(error);
    });
    return () => controller.abort();
  }, [isKept, hasRecord, tab, path, rank, attempt]);
  return source;
}

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, onAsk: (asked: Asked) => void}} props */
function Head({ data, live, onAsk }) {
  return html`<div class="head">
    <div class="title">
      <p class="crumbs"><a href="#/jobs">${t("page.jobs")}</a> / <a href=${`#/jobs?ns=${encodeURIComponent(data.namespace)}`}>${data.namespace}</a>${data.kind === "TrainJob" ? null : html` / ${data.kind}`}</p>
      <h1><${Given} text=${data.name} /></h1>
      <${State} state=${live ? getShownState(live) : data.state} />
      ${live ? null : html`<span class="badge">${t("job.record")}</span>`}
    </div>
    ${isReadOnly() ? null : live ? html`<${Actions} job=${live} onAsk=${onAsk} />` : html`<div class="actions"><a class="button" href=${buildCloneAddress(data, false)}>${t("job.clone")}</a><${RecordActions} record=${data} /></div>`}
  </div>`;
}

/** @param {{job: JobDetail, onAsk: (asked: Asked) => void}} props */
function Actions({ job, onAsk }) {
  return html`<div class="actions">
    <a class="button" href=${buildCloneAddress(job, true)}>${t("job.clone")}</a>
    ${VERBS.filter((verb) => isApplicable(verb, job)).map((verb) => html`<button key=${verb} type="button" class=${verb === "delete" ? "danger-text" : ""} onClick=${() => onAsk({ verb, job })}>${t(`verb.${verb}`)}</button>`)}
  </div>`;
}

/** @param {{tab: string, ranks: number, events: number}} props */
function Tabs({ tab, ranks, events }) {
  /** @type {Record<string, number>} */
  const counts = { ranks, events };
  return html`<nav class="tabs" aria-label=${t("job.parts")}>
    ${TABS.map((name) => html`<a key=${name} href=${changeQuery({ tab: name === "logs" ? null : name })} aria-current=${name === tab ? "page" : undefined}>${t(`tab.${name}`)}${counts[name] ? html` <span class="number">${counts[name]}</span>` : null}</a>`)}
  </nav>`;
}

/** @param {{lines: LogLines, source: import("../lib/log_lines.js").Source, data: JobDetail | RecordDetail, record: RecordDetail | null, attempts: number}} props */
function Logs({ lines, source, data, record, attempts }) {
  const known = record ? record.logs : data.workers;
  const ranks = [...new Set(known.map((one) => one.worker))].sort((one, other) => one - other);
  return html`<${LogView} lines=${lines} source=${source} ranks=${ranks} attempts=${attempts} fileName=${`${data.name}.log`} />`;
}

/** @param {{problem: {status: number, message?: string, detail?: string, hint?: string}, name: string, namespace: string}} props */
function NoJob({ problem, name, namespace }) {
  if (problem.status === 404 && !hasAbility("history")) return html`<h1><${Given} text=${name} /></h1><${Empty}>${t("job.lost")} <a href="#/jobs">${t("jobs.all")}</a><//>`;
  return html`<h1><${Given} text=${name} /></h1>
    <${Problem} problem=${{ ...problem, hint: "" }} />
    <${Empty}><a href=${`#/history?ns=${encodeURIComponent(namespace)}&name=${encodeURIComponent(name)}`}>${t("job.find")}</a>, <a href="#/jobs">${t("jobs.all")}</a><//>`;
}
