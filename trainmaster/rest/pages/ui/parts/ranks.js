// The workers of a job. Many of them are shown as a field of squares, too, so that the odd one is seen at once.
import { html } from "../html.js";
import { findText, t } from "../lib/i18n.js";
import { changeQuery } from "../lib/router.js";
import { Empty, Given, Span, Time } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../api.js").WorkerState} WorkerState */

/** From so many on the field helps. */
const MANY = 9;

/** The states of Pods, shown like those of jobs. */
const ICONS = /** @type {Record<string, string>} */ ({ Succeeded: "Complete", Failed: "Failed", Running: "Running", Pending: "Pending" });

/** @param {{workers: WorkerState[]}} props */
export function Ranks({ workers }) {
  if (!workers.length) return html`<${Empty}>${t("ranks.none")}<//>`;
  const hasJobs = new Set(workers.map((one) => one.job)).size > 1;
  return html`
    ${workers.length >= MANY ? html`<${Field} workers=${workers} />` : null}
    <div class="wide-table" tabindex="0" role="region" aria-label=${t("tab.ranks")}><table>
      <thead><tr>
        <th scope="col" class="numeric">${t("rank.rank")}</th>${hasJobs ? html`<th scope="col">${t("rank.job")}</th>` : null}
        <th scope="col">${t("column.state")}</th><th scope="col" class="numeric">${t("rank.code")}</th><th scope="col">${t("event.reason")}</th>
        <th scope="col">${t("rank.node")}</th><th scope="col" class="numeric">${t("column.restarts")}</th><th scope="col">${t("rank.started")}</th>
        <th scope="col" class="numeric">${t("column.duration")}</th><th scope="col">${t("rank.pod")}</th>
      </tr></thead>
      <tbody>${workers.map((worker) => html`<${Rank} key=${worker.pod} worker=${worker} hasJobs=${hasJobs} />`)}</tbody>
    </table></div>`;
}

/** @param {WorkerState} worker */
function buildLogAddress(worker) {
  return changeQuery({ tab: null, rank: String(worker.worker), attempt: null, line: null });
}

/** @param {{worker: WorkerState, hasJobs: boolean}} props */
function Rank({ worker, hasJobs }) {
  const why = [worker.reason, worker.message].filter(Boolean).join(": ");
  return html`<tr>
    <td class="numeric"><a href=${buildLogAddress(worker)} aria-label=${t("log.rank.this", { rank: String(worker.worker) })}>${worker.worker}</a></td>
    ${hasJobs ? html`<td>${worker.job}</td>` : null}
    <td><${PodState} state=${worker.state} /></td>
    <td class="numeric">${worker.exit_code ?? "–"}</td>
    <td class="text"><${Given} text=${worker.state === "Succeeded" ? "" : why} /></td>
    <td>${worker.node ?? "–"}</td>
    <td class="numeric">${worker.restarts}</td>
    <td><${Time} time=${worker.started_at} /></td>
    <td class="numeric">${worker.started_at ? html`<${Span} from=${worker.started_at} to=${worker.finished_at} />` : "–"}</td>
    <td class="pod">${worker.pod}</td>
  </tr>`;
}

/** @param {{state: string}} props */
function PodState({ state }) {
  const icon = ICONS[state] ?? "Unknown";
  return html`<span class="state state-${icon}"><${Icon} name=${icon} /><span>${findText(`pod.${state}`) ?? state}</span></span>`;
}

/** @param {{workers: WorkerState[]}} props */
function Field({ workers }) {
  return html`<ul class="field" aria-label=${t("ranks.field")}>
    ${workers.map((worker) => {
      const icon = ICONS[worker.state] ?? "Unknown";
      const title = `${t("log.rank.this", { rank: String(worker.worker) })}: ${findText(`pod.${worker.state}`) ?? worker.state}`;
      return html`<li key=${worker.pod}><a class="state-${icon}" href=${buildLogAddress(worker)} title=${title} aria-label=${title}><${Icon} name=${icon} /><span>${worker.worker}</span></a></li>`;
    })}
  </ul>`;
}
