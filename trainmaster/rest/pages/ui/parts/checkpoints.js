// The checkpoints of a job: which are whole, why they are kept, and saving one file of one of them.
import { html, useState } from "../html.js";
import { get } from "../lib/api.js";
import { buildSource, saveFile } from "../lib/downloads.js";
import { formatNumber, t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { formatBytes } from "../lib/quantity.js";
import { Age, Empty, Given, Loading, Problem } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */
/** @typedef {import("../lib/downloads.js").FileSource} FileSource */
/** @typedef {import("../api.js").CheckpointEntry} CheckpointEntry */
/** @typedef {import("../api.js").CheckpointEntries} CheckpointEntries */

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null}} props */
export function Checkpoints({ data, live }) {
  const source = buildSource(data, live !== null);
  const [round, setRound] = useState(0);
  const { value, problem, isLoading } = useLoaded((signal) => get(`${source.path}/checkpoints`, source.query, signal), [source.path, live?.state, round]);
  if (!value) return problem ? html`<${Problem} problem=${problem} />` : html`<${Loading} />`;
  return html`
    ${live && !live.completed_at ? html`<p><button type="button" disabled=${isLoading} onClick=${() => setRound(round + 1)}>${t("outputs.again")}</button></p>` : null}
    <${List} source=${source} found=${value} />`;
}

/** @param {{source: FileSource, found: CheckpointEntries}} props */
function List({ source, found }) {
  if (!found.items.length) return html`<${Empty}>${found.missing ? html`<${Given} text=${found.missing} />` : t("checkpoint.none")}<//>`;
  return html`
    <div class="wide-table" tabindex="0" role="region" aria-label=${t("tab.checkpoints")}><table class="files">
      <thead><tr><th scope="col">${t("checkpoint.name")}</th><th scope="col" class="numeric">${t("checkpoint.step")}</th>
        <th scope="col" class="numeric">${t("checkpoint.attempt")}</th><th scope="col" class="numeric">${t("file.size")}</th>
        <th scope="col">${t("checkpoint.state")}</th><th scope="col">${t("checkpoint.age")}</th><th scope="col">${t("checkpoint.kept")}</th></tr></thead>
      <tbody>${found.items.map((one) => html`<${Row} key=${one.name} one=${one} source=${source} />`)}</tbody>
    </table></div>
    <p class="quiet">${t("checkpoint.count", { n: found.count, size: formatBytes(found.bytes) })}${found.count > found.items.length ? html` ${t("file.first", { shown: formatNumber(found.items.length) })}` : null} ${describePolicy(found)}</p>
    ${found.notes.map((note) => html`<p key=${note} class="quiet"><${Given} text=${note} /></p>`)}`;
}

/** @param {{one: CheckpointEntry, source: FileSource}} props */
function Row({ one, source }) {
  const [isOpen, setOpen] = useState(false);
  const reasons = one.kept.map((reason) => t(`checkpoint.kept.${reason}`)).join(", ");
  return html`<tr>
      <td class="text pod"><button type="button" class="link" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}><${Given} text=${one.name} /></button>
        <span class="quiet">${one.format}</span></td>
      <td class="numeric">${one.step === null ? "–" : formatNumber(one.step)}</td>
      <td class="numeric">${one.attempt === null ? "–" : one.attempt}</td>
      <td class="numeric">${formatBytes(one.bytes)}</td>
      <td class="text">${one.complete ? t("checkpoint.complete") : t("checkpoint.incomplete")}${one.problem ? html`: <${Given} text=${one.problem} />` : null}</td>
      <td><${Age} time=${one.modified_at} /></td>
      <td>${reasons || html`<span class="quiet">–</span>`}</td>
    </tr>
    ${isOpen ? html`<tr><td class="text" colspan="7"><${CheckpointFiles} one=${one} source=${source} /></td></tr>` : null}`;
}

/** @param {{one: CheckpointEntry, source: FileSource}} props */
function CheckpointFiles({ one, source }) {
  return html`<ul>${one.files.map((file) => html`<li key=${file.path} class="pod"><${Given} text=${file.path} /> <span class="quiet">${formatBytes(file.bytes)}</span>
      <button type="button" class="bare" onClick=${() => saveFile(source, "checkpoints", file.path)} aria-label=${t("file.save.name", { name: file.path })} title=${t("file.save")}><${Icon} name="save" /></button></li>`)}</ul>
    ${one.copied_from ? html`<p class="quiet">${t("checkpoint.copied")} <${Given} text=${one.copied_from} /></p>` : null}
    ${one.file_count > one.files.length ? html`<p class="quiet">${t("file.count", { n: one.file_count, size: formatBytes(one.bytes) })} ${t("file.first", { shown: formatNumber(one.files.length) })}</p>` : null}`;
}

/** @param {CheckpointEntries} found */
function describePolicy(found) {
  const last = found.keep_last === null ? "" : t("checkpoint.policy.last", { n: found.keep_last });
  const every = found.keep_every === null ? "" : t("checkpoint.policy.every", { n: formatNumber(found.keep_every) });
  return [last, every].filter(Boolean).join(" ");
}
