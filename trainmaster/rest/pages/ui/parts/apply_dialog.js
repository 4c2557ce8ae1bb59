// Creates a job again with a change that would start it, after a confirmation.
import { html, useState } from "../html.js";
import { ApiProblem, request } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { navigate } from "../lib/router.js";
import { hasAbility } from "../lib/session.js";
import { Given, Problem } from "./basics.js";
import { Dialog } from "./dialog.js";

/** @param {{change: import("../api.js").Change, job: import("../lib/job_state.js").JobDetail, onClose: () => void}} props */
export function ApplyDialog({ change, job, onClose }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ApiProblem | null} */ (null));
  const apply = async () => {
    setBusy(true);
    try {
      const made = await request("POST", `jobs/${encodeURIComponent(job.name)}/replace`, { query: { namespace: job.namespace, kind: job.kind }, body: { patch: change.patch } });
      navigate(buildJobAddress({ ...made, kind: job.kind }));
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      setProblem(error);
      setBusy(false);
    }
  };
  const actions = html`<button type="button" onClick=${onClose}>${t("cancel")}</button>
    <button type="button" class="main" disabled=${isBusy || problem !== null} onClick=${apply}>${t("explain.apply.confirm")}</button>`;
  return html`<${Dialog} title=${t("explain.apply")} onClose=${onClose} actions=${actions}>
    <${Problem} problem=${problem} />
    <p><b><${Given} text=${change.text} /></b></p>
    <p>${t("explain.apply.text", { name: job.name })}${hasAbility("history") ? ` ${t("explain.apply.kept")}` : null}</p>
    <pre tabindex="0">${JSON.stringify(change.patch, null, 2)}</pre>
  <//>`;
}
