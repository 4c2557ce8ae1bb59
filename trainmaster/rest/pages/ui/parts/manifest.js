// A job as YAML that creates it again, without what the server has added.
import { html } from "../html.js";
import { open } from "../lib/api.js";
import { buildSource } from "../lib/downloads.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { toVisible } from "../lib/log_text.js";
import { Copy, Loading, Problem } from "./basics.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null}} props */
export function Manifest({ data, live }) {
  const source = buildSource(data, live !== null);
  /** @param {AbortSignal} signal */
  const load = async (signal) => (await open("GET", `${source.path}/manifest`, { query: source.query, signal })).text();
  const { value, problem } = useLoaded(load, [source.path]);
  if (value === null) return problem ? html`<${Problem} problem=${problem} />` : html`<${Loading} />`;
  return html`<section class="preview" aria-label=${t("tab.manifest")}>
    <p class="tools"><${Copy} text=${value} label=${t("manifest.copy")} /></p>
    <pre tabindex="0">${toVisible(value)}</pre>
  </section>`;
}
