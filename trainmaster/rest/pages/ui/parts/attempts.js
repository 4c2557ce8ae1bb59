// The attempts of a job one after another: when each began and ended, how far it came, and why it failed.
import { html } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { hasJobs } from "../lib/job_state.js";
import { useLoaded } from "../lib/load.js";
import { formatValue } from "../lib/quantity.js";
import { changeQuery } from "../lib/router.js";
import { now, parseTime } from "../lib/time.js";
import { Given, Problem, Span, Time } from "./basics.js";
import { nameWorker } from "./verdict.js";

/** @typedef {import("../api.js").JobAttempt} JobAttempt */
/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, record: RecordDetail | null, kind: string}} props */
export function Attempts({ data, live, record, kind }) {
  const path = record ? `history/${encodeURIComponent(record.uid)}` : `jobs/${encodeURIComponent(data.name)}`;
  /** @param {AbortSignal} signal */
  const load = (signal) => get(`${path}/attempts`, { namespace: data.namespace, kind: record ? "" : kind }, signal);
  const { value, problem } = useLoaded(load, [path, live?.attempt, live?.state]);
  /** @type {JobAttempt[]} */
  const attempts = value?.items ?? [];
  if (problem) return html`<${Problem} problem=${problem} />`;
  if (!attempts.length) return null;
  const begin = Math.min(...attempts.map((one) => parseTime(one.began_at) ?? Infinity));
  const end = live && !live.completed_at ? now.value : (parseTime(data.completed_at ?? record?.deleted_at) ?? now.value);
  return html`<h2 class="spaced">${t("attempts")}</h2>
    <ol class="attempts">${attempts.map((attempt, index) => html`<${Attempt} key=${attempt.attempt} attempt=${attempt} isLast=${index === attempts.length - 1} data=${data} begin=${begin} end=${end} />`)}</ol>`;
}

/** @param {{attempt: JobAttempt, isLast: boolean, data: JobDetail | RecordDetail, begin: number, end: number}} props */
function Attempt({ attempt, isLast, data, begin, end }) {
  const log = changeQuery({ tab: null, attempt: String(attempt.attempt), rank: null, line: null });
  const until = attempt.ended_at ?? (isLast ? data.completed_at : null);
  const from = parseTime(attempt.began_at);
  const to = parseTime(until) ?? end;
  const whole = Math.max(1, end - begin);
  const state = attempt.verdict ? "Failed" : !isLast ? "Unknown" : data.state;
  const place = from === null ? null : { left: `${Math.max(0, (100 * (from - begin)) / whole)}%`, width: `${Math.max(0.5, (100 * (to - from)) / whole)}%` };
  return html`<li>
    <div class="line-1"><a class="name" href=${log}>${t("log.attempt", { attempt: String(attempt.attempt) })}</a>
      <span class="quiet">${attempt.began_at ? html`<${Time} time=${attempt.began_at} /> · <${Span} from=${attempt.began_at} to=${until} />` : t("attempts.unknown")}</span></div>
    <div class="track" aria-hidden="true">${place ? html`<span class="stretch state-${state}" style=${place}></span>` : null}</div>
    <${Steps} attempt=${attempt} />
    ${attempt.verdict ? html`<p class="line-2"><${Given} text=${attempt.verdict.error ?? attempt.verdict.reason} />${attempt.verdict.worker === null ? null : ` · ${nameWorker(attempt.verdict, hasJobs(data.workers))}`}</p>` : null}
  </li>`;
}

/**
 * Where it went on, if it reported steps: after the first attempt that is the step of the checkpoint.
 * @param {{attempt: JobAttempt}} props
 */
function Steps({ attempt }) {
  const { first_step: first, last_step: last } = attempt;
  if (first === null || last === null) return null;
  return html`<p class="line-2">${t("attempts.steps", { first: formatValue(first), last: formatValue(last) })}</p>`;
}
