// Before something is done to jobs: the plan. Then the result for each of them.
import { html, useMemo, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { hasAbility } from "../lib/session.js";
import { applyVerb, isApplicable } from "../lib/verbs.js";
import { Given, State } from "./basics.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icons.js";

/** @typedef {import("../lib/verbs.js").Result} Result */
/** @typedef {import("../lib/verbs.js").Target} Target */

const MOST_SHOWN = 200;

/** @param {{verb: import("../lib/verbs.js").Verb, jobs: Target[], onClose: (isDone: boolean) => void}} props */
export function VerbDialog({ verb, jobs, onClose }) {
  // The plan is that of the moment when the dialog opened: what is confirmed is what was shown.
  const [plan, left] = useMemo(() => [jobs.filter((job) => isApplicable(verb, job)), jobs.filter((job) => !isApplicable(verb, job))], []);
  const [results, setResults] = useState(/** @type {Result[] | null} */ (null));
  const isOver = results !== null && results.every((result) => result.state !== "waiting");
  const isLost = verb === "delete" && !hasAbility("history");
  const start = () => applyVerb(verb, plan, setResults);
  const failed = results?.filter((result) => result.state === "failed").length ?? 0;
  const actions = results
    ? html`<button type="button" class="main" disabled=${!isOver} onClick=${() => onClose(true)}>${t("close")}</button>`
    : html`<button type="button" onClick=${() => onClose(false)}>${t("cancel")}</button>
        <button type="button" class=${verb === "delete" ? "danger" : "main"} disabled=${!plan.length} onClick=${start}>
          ${t(`verb.${verb}.confirm`, { n: plan.length })}
        </button>`;
  const ended = results?.filter((result) => result.state !== "waiting").length ?? 0;
  const counts = { done: ended, all: plan.length, failed };
  return html`<${Dialog} title=${t(`verb.${verb}`)} onClose=${() => onClose(results !== null)} actions=${actions}>
    <p aria-live="polite">${results ? t("verb.progress", counts) : isLost ? t("verb.delete.lost", { n: plan.length }) : t(`verb.${verb}.plan`, { n: plan.length })}</p>
    <${Plan} lines=${results ?? plan.map((job) => ({ job }))} />
    ${left.length && !results ? html`<p class="quiet">${t("verb.left", { n: left.length })}</p><${Plan} lines=${left.map((job) => ({ job }))} />` : null}
  <//>`;
}

/**
 * What failed stands first.
 * @param {{lines: {job: Target, state?: Result["state"], text?: string}[]}} props
 */
function Plan({ lines }) {
  const ordered = [...lines.filter((line) => line.state === "failed"), ...lines.filter((line) => line.state !== "failed")];
  return html`<ul class="plan">
    ${ordered.slice(0, MOST_SHOWN).map((line) => html`<${PlanLine} key=${line.job.uid} line=${line} />`)}
    ${ordered.length > MOST_SHOWN ? html`<li class="quiet">${t("verb.more", { n: ordered.length - MOST_SHOWN })}</li>` : null}
  </ul>`;
}

/** @param {{line: {job: Target, state?: Result["state"], text?: string}}} props */
function PlanLine({ line }) {
  const { job, state, text } = line;
  return html`<li>
    <span class="name"><span class="quiet">${job.namespace}/</span><${Given} text=${job.name} /></span>
    ${state ? html`<${Outcome} state=${state} text=${text} />` : html`<${State} state=${job.deleting ? "Deleting" : job.state} />`}
  </li>`;
}

/** @param {{state: Result["state"], text: string}} props */
function Outcome({ state, text }) {
  if (state === "waiting") return html`<span class="result quiet">${t("verb.waiting")}</span>`;
  return html`<span class="result ${state}"><${Icon} name=${state === "done" ? "Complete" : "Failed"} /><${Given} text=${text} /></span>`;
}
