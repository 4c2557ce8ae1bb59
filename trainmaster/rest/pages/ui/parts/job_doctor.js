// A button that asks the doctor about a job.
import { html, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { lazy } from "../lib/lazy.js";

const JobExamination = lazy(() => import("./job_examination.js").then((module) => module.JobExamination));

/** @param {{job: {namespace: string, name: string, kind: string}}} props */
export function JobDoctor({ job }) {
  const [isOpen, setOpen] = useState(false);
  return html`<p class="doctor"><button type="button" onClick=${() => setOpen(true)}>${t("jobdoctor")}</button></p>
    ${isOpen ? html`<${JobExamination} job=${job} onClose=${() => setOpen(false)} />` : null}`;
}
