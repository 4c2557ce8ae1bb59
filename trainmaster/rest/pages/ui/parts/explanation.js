// Why a job does what it does, in one sentence, and what would start one that waits.
import { html, useEffect, useState } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { lazy } from "../lib/lazy.js";
import { useLoaded } from "../lib/load.js";
import { isReadOnly } from "../lib/session.js";
import { Age, Command, Given, Reason, Sentence } from "./basics.js";
import { JobDoctor } from "./job_doctor.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** @typedef {import("../api.js").Change} Change */

const ApplyDialog = lazy(() => import("./apply_dialog.js").then((module) => module.ApplyDialog));

/** The queue moves although nothing about this job changes. */
const AGAIN_MS = 10_000;

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, record: RecordDetail | null}} props */
export function Explanation({ data, live, record }) {
  const isWaiting = live?.state === "Pending";
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!isWaiting) return undefined;
    const timer = setInterval(() => document.hidden || setRound((before) => before + 1), AGAIN_MS);
    return () => clearInterval(timer);
  }, [isWaiting]);
  /** @param {AbortSignal} signal */
  const load = async (signal) => (live ? get(`jobs/${encodeURIComponent(live.name)}/explain`, { namespace: live.namespace, kind: live.kind }, signal) : null);
  const { value } = useLoaded(load, [live?.uid, live?.state, live?.reason, live?.message, live?.attempt, round]);
  /** @type {import("../api.js").Explanation | null} */
  const found = live ? value : null;
  if (!found) return html`<${Plain} data=${data} record=${record} />`;
  return html`<section class="explanation" aria-label=${t("explain")}>
    ${live ? html`<${JobDoctor} job=${live} />` : null}
    <p class="sentence">${found.reason && found.reason !== live?.state ? html`<b><${Reason} reason=${found.reason} /></b>: ` : null}<${Sentence} text=${found.sentence} /></p>
    ${found.position ? html`<p class="quiet">${t("explain.position", { position: found.position, queue: found.queue })} · ${t("explain.since")} <${Age} time=${found.since} /></p>` : null}
    <${List} title=${t("explain.unblock")} items=${found.unblock} />
    <${Changes} changes=${found.changes} job=${live} />
    <${List} title=${t("explain.facts")} items=${found.facts} />
  </section>`;
}

/** @param {{data: JobDetail | RecordDetail, record: RecordDetail | null}} props */
function Plain({ data, record }) {
  const gaps = record?.gaps ?? [];
  if (!data.message && !gaps.length) return null;
  return html`<section class="explanation" aria-label=${t("explain")}>
    ${data.message ? html`<p class="sentence"><${Given} text=${data.message} /></p>` : null}
    <${List} title=${t("job.gaps")} items=${gaps} />
  </section>`;
}

/** @param {{title: string, items: string[]}} props */
function List({ title, items }) {
  if (!items.length) return null;
  return html`<div class="because"><h2>${title}</h2><ul>${items.map((item) => html`<li key=${item}><${Sentence} text=${item} /></li>`)}</ul></div>`;
}

/** @param {{changes: Change[], job: JobDetail | null}} props */
function Changes({ changes, job }) {
  const [chosen, setChosen] = useState(/** @type {Change | null} */ (null));
  if (!changes.length) return null;
  const mayApply = job !== null && !isReadOnly();
  return html`<div class="because"><h2>${t("explain.changes")}</h2>
    <ul>${changes.map((change) => html`<li key=${change.text}><${Given} text=${change.text} />${change.how.startsWith("trainmaster ") ? html`<${Command} command=${change.how} />` : html`<span class="quiet"><${Given} text=${change.how} /></span>`}
      ${change.patch && mayApply ? html`<button type="button" onClick=${() => setChosen(change)}>${t("explain.apply")}</button>` : null}</li>`)}</ul>
  </div>
  ${chosen && job ? html`<${ApplyDialog} change=${chosen} job=${job} onClose=${() => setChosen(null)} />` : null}`;
}
