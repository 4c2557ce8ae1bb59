// The workers of a job and what they use now, and its attempts. Many workers are shown as a field of squares, too, so that
// the odd one is seen at once.
import { html } from "../html.js";
import { findText, t } from "../lib/i18n.js";
import { hasJobs } from "../lib/job_state.js";
import { formatBytes } from "../lib/quantity.js";
import { changeQuery } from "../lib/router.js";
import { nameRank, readMeasures } from "../lib/usage.js";
import { Attempts } from "./attempts.js";
import { Empty, Given, Span, Time } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../api.js").RankNow} RankNow */
/** @typedef {import("../api.js").WorkerState} WorkerState */
/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** From so many on the field helps. */
const MANY = 9;

/** The states of Pods, shown like those of jobs. */
const ICONS = /** @type {Record<string, string>} */ ({ Succeeded: "Complete", Failed: "Failed", Running: "Running", Pending: "Pending" });

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, record: RecordDetail | null, kind: string, usage: import("../lib/usage.js").UsageState}} props */
export function Ranks({ data, live, record, kind, usage }) {
  const { workers } = data;
  const now = new Map((usage.moment.value?.now ?? []).map((rank) => [nameRank(rank), rank]));
  return html`
    ${workers.length >= MANY ? html`<${Field} workers=${workers} />` : null}
    ${workers.length ? html`<${Table} workers=${workers} now=${now} />` : html`<${Empty}>${t("ranks.none")}<//>`}
    <${Attempts} data=${data} live=${live} record=${record} kind=${kind} />`;
}

/** @param {{workers: WorkerState[], now: Map<string, RankNow>}} props */
function Table({ workers, now }) {
  const ranks = [...now.values()];
  const shows = { job: hasJobs(workers), use: ranks.length > 0, gpus: ranks.some((rank) => rank.gpu_count > 0) };
  return html`
    <div class="wide-table" tabindex="0" role="region" aria-label=${t("tab.ranks")}><table>
      <thead><tr>
        <th scope="col" class="numeric">${t("rank.rank")}</th>${shows.job ? html`<th scope="col">${t("rank.job")}</th>` : null}
        <th scope="col">${t("column.state")}</th>
        ${shows.use ? html`<th scope="col" class="numeric">${t("usage.cpu")}</th><th scope="col" class="numeric">${t("usage.memory")}</th>` : null}
        ${shows.gpus ? html`<th scope="col">${t("rank.gpus")}</th>` : null}
        <th scope="col" class="numeric">${t("rank.code")}</th><th scope="col">${t("event.reason")}</th>
        <th scope="col">${t("rank.node")}</th><th scope="col" class="numeric">${t("column.restarts")}</th><th scope="col">${t("rank.started")}</th>
        <th scope="col" class="numeric">${t("column.duration")}</th><th scope="col">${t("rank.pod")}</th>
      </tr></thead>
      <tbody>${workers.map((worker) => html`<${Rank} key=${worker.pod} worker=${worker} now=${now.get(nameRank(worker)) ?? null} shows=${shows} />`)}</tbody>
    </table></div>`;
}

/** @param {WorkerState} worker */
function buildLogAddress(worker) {
  return changeQuery({ tab: null, rank: String(worker.worker), attempt: null, line: null });
}

/** @param {{worker: WorkerState, now: RankNow | null, shows: {job: boolean, use: boolean, gpus: boolean}}} props */
function Rank({ worker, now, shows }) {
  const why = [worker.reason, worker.message].filter(Boolean).join(": ");
  return html`<tr>
    <td class="numeric"><a href=${buildLogAddress(worker)} aria-label=${t("log.rank.this", { rank: String(worker.worker) })}>${worker.worker}</a></td>
    ${shows.job ? html`<td>${worker.job}</td>` : null}
    <td><${PodState} state=${worker.state} /></td>
    ${shows.use ? html`<td class="numeric"><${Cpu} now=${now} /></td><td class="numeric"><${Memory} now=${now} /></td>` : null}
    ${shows.gpus ? html`<td><${Gpus} now=${now} /></td>` : null}
    <td class="numeric">${worker.exit_code ?? "–"}</td>
    <td class="text"><${Given} text=${worker.state === "Succeeded" ? "" : why} /></td>
    <td>${worker.node ?? "–"}</td>
    <td class="numeric">${worker.restarts}</td>
    <td><${Time} time=${worker.started_at} /></td>
    <td class="numeric">${worker.started_at ? html`<${Span} from=${worker.started_at} to=${worker.finished_at} />` : "–"}</td>
    <td class="pod">${worker.pod}</td>
  </tr>`;
}

/** @param {{now: RankNow | null}} props */
function Cpu({ now }) {
  if (!now || now.cpu === null) return html`<span class="quiet">–</span>`;
  return html`${now.cpu.toFixed(2)}${now.cpu_requested ? html` <span class="quiet">/ ${now.cpu_requested}</span>` : null}`;
}

/** @param {{now: RankNow | null}} props */
function Memory({ now }) {
  if (!now || now.memory === null) return html`<span class="quiet">–</span>`;
  return html`${formatBytes(now.memory)}${now.memory_limit ? html` <span class="quiet">/ ${formatBytes(now.memory_limit)}</span>` : null}`;
}

/** @param {{now: RankNow | null}} props their numbers on the node, and what the rank does with them */
function Gpus({ now }) {
  if (!now?.gpu_count) return html`<span class="quiet">–</span>`;
  const { gpu, gpu_memory: memory } = readMeasures(now);
  const numbers = now.gpus.map((one) => one.index).join(", ") || t("rank.gpus.count", { n: now.gpu_count });
  const load = [gpu === null ? "" : `${gpu} %`, memory === null ? "" : formatBytes(memory)].filter(Boolean).join(", ");
  return html`${numbers}${load ? html` <span class="quiet">${load}</span>` : null}`;
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
