// What a job wrote: its output directory, and what rank 0 left in its working directory and its home.
import { html, useState } from "../html.js";
import { get } from "../lib/api.js";
import { buildSource } from "../lib/downloads.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { Loading, Problem } from "./basics.js";
import { Files } from "./files.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null}} props */
export function Outputs({ data, live }) {
  const source = buildSource(data, live !== null);
  const [round, setRound] = useState(0);
  const { value, problem, isLoading } = useLoaded((signal) => get(`${source.path}/outputs`, source.query, signal), [source.path, live?.state, round]);
  if (!value) return problem ? html`<${Problem} problem=${problem} />` : html`<${Loading} />`;
  return html`
    ${live && !live.completed_at ? html`<p><button type="button" disabled=${isLoading} onClick=${() => setRound(round + 1)}>${t("outputs.again")}</button></p>` : null}
    <${Files} source=${source} what="outputs" files=${value} empty=${t("outputs.none")} />`;
}
