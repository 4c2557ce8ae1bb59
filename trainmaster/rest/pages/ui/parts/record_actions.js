// What can be done with the record of a job: run the job again, and delete the record of one that is gone.
import { html, useState } from "../html.js";
import { ApiProblem, request } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { buildAddress, navigate } from "../lib/router.js";
import { addToast } from "../lib/toasts.js";
import { Given, Problem } from "./basics.js";
import { Dialog } from "./dialog.js";

/** @typedef {{uid: string, namespace: string, name: string, kind: string, deleted_at: string | null}} RecordHead */
/** @typedef {"rerun" | "forget"} Act */

/** @param {{record: RecordHead, onDeleted?: () => void}} props */
export function RecordActions({ record, onDeleted = () => navigate("#/history") }) {
  const [act, setAct] = useState(/** @type {Act | null} */ (null));
  /** @type {Act[]} */
  const acts = record.deleted_at ? ["rerun", "forget"] : ["rerun"];
  return html`<div class="actions">
    ${acts.map((one) => html`<button key=${one} type="button" class=${one === "forget" ? "danger-text" : ""} onClick=${() => setAct(one)}
      aria-label=${`${t(`record.${one}`)}: ${record.name}`}>${t(`record.${one}`)}</button>`)}
    ${act ? html`<${RecordDialog} act=${act} record=${record} onClose=${() => setAct(null)} onDeleted=${onDeleted} />` : null}
  </div>`;
}

/** @param {{act: Act, record: RecordHead, onClose: () => void, onDeleted: () => void}} props */
function RecordDialog({ act, record, onClose, onDeleted }) {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState(/** @type {ApiProblem | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  // A request whose answer is lost must not start a second job when it is repeated.
  const [key] = useState(() => crypto.randomUUID());
  const start = async () => {
    setBusy(true);
    setProblem(null);
    try {
      if (act === "rerun") await rerun(record, name.trim(), `${key} ${name.trim()}`);
      else await forget(record);
      onClose();
      if (act === "forget") onDeleted();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      setProblem(error);
      setBusy(false);
    }
  };
  const actions = html`<button type="button" onClick=${onClose}>${t("cancel")}</button>
    <button type="button" class=${act === "forget" ? "danger" : "main"} disabled=${isBusy} onClick=${start}>${t(`record.${act}`)}</button>`;
  return html`<${Dialog} title=${t(`record.${act}`)} onClose=${onClose} actions=${actions}>
    <p class="name"><span class="quiet">${record.namespace}/</span><${Given} text=${record.name} /></p>
    <p>${t(`record.${act}.plan`)}</p>
    ${act === "rerun" ? html`<label class="stacked">${t("record.name")}<input type="text" maxlength="44" value=${name} placeholder=${t("record.name.hint")} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>` : null}
    <${Problem} problem=${problem} />
  <//>`;
}

/**
 * @param {RecordHead} record
 * @param {string} name "": one is chosen
 * @param {string} key
 */
async function rerun(record, name, key) {
  const options = { query: { namespace: record.namespace }, body: name ? { name } : {}, headers: { "idempotency-key": key } };
  const answer = await request("POST", `history/${encodeURIComponent(record.uid)}/rerun`, options);
  const kind = record.kind === "TrainJob" ? null : record.kind;
  addToast("done", t("verb.restart.created", { name: answer.name }));
  navigate(buildAddress(["job", answer.namespace, answer.name], { kind }));
}

/** @param {RecordHead} record */
async function forget(record) {
  await request("DELETE", `history/${encodeURIComponent(record.uid)}`, { query: { namespace: record.namespace } });
  addToast("done", t("record.forget.done", { name: record.name }));
}
