// What the ranks of a job were doing when they were last looked at: where each thread was, and what its process waited for.
import { html, useState } from "../html.js";
import { get, request } from "../lib/api.js";
import { findText, t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { formatBytes } from "../lib/quantity.js";
import { isReadOnly } from "../lib/session.js";
import { Empty, Given, Loading, Problem, Time } from "./basics.js";

/** @typedef {import("../api.js").Evidence} EvidenceOfJob */
/** @typedef {import("../api.js").EvidenceProcess} EvidenceProcess */
/** @typedef {import("../api.js").EvidenceThread} EvidenceThread */
/** @typedef {import("../api.js").RankEvidence} RankEvidence */
/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, record: RecordDetail | null, kind: string}} props */
export function Evidence({ data, live, record, kind }) {
  // How often somebody has asked for a look.
  const [looks, setLooks] = useState(0);
  const path = record ? `history/${encodeURIComponent(record.uid)}/evidence` : `jobs/${encodeURIComponent(data.name)}/evidence`;
  const query = { namespace: data.namespace, kind: record ? "" : kind };
  /** @param {AbortSignal} signal */
  const load = (signal) => (looks ? request("POST", path, { query, signal }) : get(path, query, signal));
  const { value, problem, isLoading } = useLoaded(load, [path, looks]);
  /** @type {EvidenceOfJob | null} */
  const found = value;
  const isNone = problem?.status === 404;
  return html`<div class="evidence">
    ${live && !live.completed_at && !isReadOnly() ? html`<p><button type="button" disabled=${isLoading} onClick=${() => setLooks(looks + 1)}>${t("evidence.now")}</button></p>` : null}
    ${isNone ? html`<${Empty}>${t("evidence.none")}<//>` : html`<${Problem} problem=${problem} />`}
    ${found ? html`<${Found} found=${found} />` : isLoading ? html`<${Loading} />` : null}
  </div>`;
}

/** @param {{found: EvidenceOfJob}} props */
function Found({ found }) {
  return html`<p class="quiet">${t("log.attempt", { attempt: String(found.attempt) })} · ${t(`evidence.reason.${found.reason}`)} · <${Time} time=${found.at} /></p>
    ${found.ranks.map((rank) => html`<${Rank} key=${`${rank.job} ${rank.job_index} ${rank.worker} ${rank.container}`} rank=${rank} />`)}`;
}

/** @param {{rank: RankEvidence}} props */
function Rank({ rank }) {
  const { used, limit } = rank.memory;
  const memory = used === null ? "" : `${formatBytes(used)}${limit === null ? "" : ` / ${formatBytes(limit)}`}`;
  return html`<section class="card spaced">
    <h3>${t("verdict.rank", { rank: String(rank.worker), job: rank.job })} <span class="quiet">${memory}</span></h3>
    ${rank.end ? html`<p>${rank.end.oom_killed ? t("evidence.killed", { code: String(rank.end.code) }) : t("evidence.ended", { code: String(rank.end.code) })}</p>` : null}
    ${rank.error ? html`<p><${Given} text=${rank.error} /></p>` : null}
    ${rank.processes.map((process) => html`<${Process} key=${process.pid} process=${process} />`)}
    ${rank.lines.length ? html`<details><summary>${t("evidence.lines")}</summary><pre><${Given} text=${rank.lines.join("\n")} /></pre></details>` : null}
  </section>`;
}

/** @param {{process: EvidenceProcess}} props */
function Process({ process }) {
  const state = findText(`evidence.state.${process.state}`) ?? process.state;
  return html`<p class="line-2"><code><${Given} text=${process.command || process.name} /></code> ${state}${process.waits_in ? ` (${process.waits_in})` : ""} · ${process.cpu_percent} % CPU</p>
    ${process.error ? html`<p class="line-2"><${Given} text=${process.error} /></p>` : null}
    ${process.stacks.map((thread, index) => html`<${Thread} key=${index} thread=${thread} isOpen=${index === 0} />`)}`;
}

/** @param {{thread: EvidenceThread, isOpen: boolean}} props */
function Thread({ thread, isOpen }) {
  const text = thread.frames.map((frame) => `${frame.function} (${frame.file}:${frame.line})`).join("\n");
  return html`<details open=${isOpen}><summary><${Given} text=${thread.name || String(thread.tid)} /></summary><pre><${Given} text=${text} /></pre></details>`;
}
