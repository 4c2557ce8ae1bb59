// What the doctor finds about one job: what keeps it from starting, ending or being deleted, and what to do.
import { html } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { Empty, Loading, Problem } from "./basics.js";
import { Dialog } from "./dialog.js";
import { DoctorFindings, splitFix } from "./doctor_findings.js";

/** @param {{job: {namespace: string, name: string, kind: string}, onClose: () => void}} props */
export function JobExamination({ job, onClose }) {
  const path = `jobs/${encodeURIComponent(job.name)}/doctor`;
  const { value, problem } = useLoaded((signal) => get(path, { namespace: job.namespace, kind: job.kind }, signal), [path, job.namespace, job.kind]);
  /** @type {import("../api.js").JobFinding[]} */
  const found = value?.findings ?? [];
  const findings = found.map((one) => ({ ...one, ...splitFix(one.fix) }));
  return html`<${Dialog} title=${t("jobdoctor.title")} onClose=${onClose}>
    <${Problem} problem=${problem} />
    ${!value ? (problem ? null : html`<${Loading} />`) : findings.length ? html`<${DoctorFindings} findings=${findings} />` : html`<${Empty}>${t("jobdoctor.nothing")}<//>`}
  <//>`;
}
