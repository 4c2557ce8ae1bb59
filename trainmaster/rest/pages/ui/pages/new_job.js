// A new job: from a form with code, or from YAML. What is typed is checked by the server, and survives a reload.
import { html, useEffect, useState } from "../html.js";
import { ApiProblem, open, request } from "../lib/api.js";
import { useCheck } from "../lib/checks.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { buildArchiveQuery, buildCommand, buildCurl, buildRequest, parseDraft, proposeName } from "../lib/new_job.js";
import { navigate, replaceQuery, route } from "../lib/router.js";
import { findOwnNamespace, isReadOnly } from "../lib/session.js";
import { addToast, showProblem } from "../lib/toasts.js";
import { Choice, Command, Copy, Empty, Problem } from "../parts/basics.js";
import { Dialog } from "../parts/dialog.js";
import { Findings, listMarks } from "../parts/findings.js";
import { JobForm } from "../parts/job_form.js";
import { TextEditor } from "../parts/text_editor.js";

/** @typedef {import("../lib/new_job.js").Draft} Draft */

const NAME = "trainmaster.new-job";

/** The bytes of a chosen archive: too many for the browser's storage, so they are gone after a reload. */
/** @type {{name: string, bytes: ArrayBuffer} | null} */
let archive = null;

/** The text of the last clone: while nobody has changed it, another one may take its place. */
let lastClone = "";

export function NewJobPage() {
  const [draft, setDraft] = useState(() => begin());
  const [target, setTarget] = useState(/** @type {{line: number, column: number} | null} */ (null));
  useEffect(() => {
    document.title = `${t("page.new")} · Trainmaster`;
  });
  const { offered, decide } = useClone(draft, setDraft);
  /** @param {Partial<Draft>} changes */
  const change = (changes) => {
    setDraft((before) => {
      const next = { ...before, ...changes };
      writeDraft(NAME, next);
      return next;
    });
  };
  const check = useCheck(draft);
  if (isReadOnly()) return html`<h1>${t("page.new")}</h1><${Empty}>${t("readonly.hint")}<//>`;
  const isYaml = draft.mode === "yaml";
  const marks = isYaml && check.answer ? listMarks(check.answer) : [];
  return html`
    <div class="head"><h1>${t("page.new")}</h1>
      <${Choice} label=${t("new.mode")} value=${draft.mode} choices=${[["form", t("new.form")], ["yaml", "YAML"]]} onChoose=${(/** @type {any} */ mode) => change({ mode })} />
    </div>
    <div class="new-job">
      <div class="new-job-input">
        ${isYaml
          ? html`<${TextEditor} id="yaml" label=${t("new.yaml")} value=${draft.yaml} marks=${marks} target=${target} describedBy="findings" onInput=${(/** @type {string} */ yaml) => change({ yaml })} />`
          : html`<${JobForm} draft=${draft} problems=${check.answer?.problems ?? []} onChange=${change} onArchive=${(/** @type {File} */ file) => takeArchive(file, change)} />`}
      </div>
      <div class="new-job-outcome">
        <${Findings} check=${check} onGo=${isYaml ? setTarget : null} />
        <${Actions} draft=${draft} isGood=${Boolean(check.answer?.ok)} preview=${check.answer?.manifests ?? null} onDone=${() => setDraft(clear())} />
        <${Same} draft=${draft} preview=${isYaml ? null : (check.answer?.manifests ?? null)} onEdit=${(/** @type {string} */ yaml) => change({ mode: "yaml", yaml })} />
      </div>
    </div>
    ${offered ? html`<${Replacing} onDecide=${decide} />` : null}`;
}

/** @param {{onDecide: (isWanted: boolean) => void}} props */
function Replacing({ onDecide }) {
  const actions = html`<button type="button" onClick=${() => onDecide(false)}>${t("new.clone.keep")}</button>
    <button type="button" class="main" onClick=${() => onDecide(true)}>${t("new.clone.replace")}</button>`;
  return html`<${Dialog} title=${t("new.clone")} onClose=${() => onDecide(false)} actions=${actions}><p>${t("new.clone.text")}</p><//>`;
}

/** @returns {Draft} */
function begin() {
  const draft = parseDraft(readDraft(NAME));
  return draft.namespace ? draft : { ...draft, namespace: findOwnNamespace() };
}

/** The draft of the next job: nothing but where it is to be. */
function clear() {
  writeDraft(NAME, null);
  archive = null;
  return begin();
}

/**
 * A job or a record that the address names becomes the text, once: what is changed then is not lost by a reload. If
 * somebody has typed something there, it is only offered.
 * @param {Draft} draft
 * @param {(change: (before: Draft) => Draft) => void} setDraft
 */
function useClone(draft, setDraft) {
  const { query } = route.value;
  const [offered, setOffered] = useState(/** @type {{namespace: string, yaml: string} | null} */ (null));
  const typed = draft.yaml.trim() && draft.yaml !== lastClone ? draft.yaml : "";
  /** @param {{namespace: string, yaml: string}} clone */
  const take = (clone) => {
    lastClone = clone.yaml;
    setDraft((before) => {
      const next = /** @type {Draft} */ ({ ...before, mode: "yaml", ...clone });
      writeDraft(NAME, next);
      return next;
    });
  };
  /** @param {boolean} isWanted */
  const decide = (isWanted) => {
    if (isWanted && offered) take(offered);
    setOffered(null);
  };
  const name = query.get("clone");
  useEffect(() => {
    if (!name) return;
    const record = query.get("record");
    const namespace = query.get("ns") ?? findOwnNamespace();
    const path = record ? `history/${encodeURIComponent(record)}` : `jobs/${encodeURIComponent(name)}`;
    const wanted = { namespace, kind: record ? null : query.get("kind"), new_name: proposeName(name) };
    open("GET", `${path}/manifest`, { query: wanted })
      .then((response) => response.text())
      .then((yaml) => (typed && typed !== yaml ? setOffered({ namespace, yaml }) : take({ namespace, yaml })), showProblem);
    replaceQuery({ clone: null, record: null, ns: null, kind: null });
  }, [name]);
  return { offered, decide };
}

/**
 * @param {File} file
 * @param {(changes: Partial<Draft>) => void} change
 */
async function takeArchive(file, change) {
  archive = { name: file.name, bytes: await file.arrayBuffer() };
  change({ source: "archive", archive: file.name });
}

/** @param {{draft: Draft, isGood: boolean, preview: string | null, onDone: () => void}} props */
function Actions({ draft, isGood, preview, onDone }) {
  const [isBusy, setBusy] = useState(false);
  const [rehearsal, setRehearsal] = useState(/** @type {string[] | null} */ (null));
  const [problem, setProblem] = useState(/** @type {ApiProblem | null} */ (null));
  const text = JSON.stringify(draft);
  // Sending the same again after a lost answer creates nothing twice.
  const [key, setKey] = useState(() => crypto.randomUUID());
  useEffect(() => {
    setKey(crypto.randomUUID());
    setRehearsal(null);
    setProblem(null);
  }, [text]);
  const manifests = draft.mode === "yaml" ? draft.yaml : preview;
  /** @param {() => Promise<void>} work */
  const run = async (work) => {
    setBusy(true);
    setProblem(null);
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  const rehearse = () => run(async () => setRehearsal(await readRehearsal(draft.namespace, manifests ?? "")));
  const create = () =>
    run(async () => {
      const made = await createJob(draft, key);
      onDone();
      if (made) navigate(buildJobAddress(made));
      else addToast("done", t("new.done"));
    });
  const isLost = draft.mode === "form" && draft.source === "archive" && !archive;
  return html`<section class="new-job-actions" aria-label=${t("new.actions")}>
    <${Problem} problem=${problem} />
    ${rehearsal ? html`<ul class="rehearsal" role="status">${rehearsal.map((line) => html`<li key=${line}>${line}</li>`)}</ul>` : null}
    ${isLost ? html`<p class="hint">${t("new.archive.again")}</p>` : null}
    <div class="actions">
      <button type="button" class="main" disabled=${isBusy || !isGood || isLost} onClick=${create}>${t("new.create")}</button>
      <button type="button" disabled=${isBusy || !manifests || draft.source === "archive"} onClick=${rehearse}>${t("new.dryrun")}</button>
      <button type="button" class="bare" disabled=${isBusy} onClick=${onDone}>${t("new.clear")}</button>
    </div>
  </section>`;
}

/**
 * What the server would do, and when the jobs would start.
 * @param {string} namespace
 * @param {string} manifests
 */
async function readRehearsal(namespace, manifests) {
  const body = { manifests };
  const done = await request("POST", "manifests", { query: { namespace, dry_run: true }, body });
  const checked = await request("POST", "check", { query: { namespace, start: true }, body });
  /** @type {string[]} */
  const lines = done.items.map((/** @type {import("../api.js").SentObject} */ one) => `${one.kind} ${one.name}: ${one.done}`);
  for (const item of /** @type {import("../api.js").CheckedObject[]} */ (checked.items)) {
    if (item.start) lines.push(`${item.kind} ${item.name}: ${t(`new.start.${item.start.state}`)}${item.start.text ? `, ${item.start.text}` : ""}`);
  }
  return lines;
}

/**
 * @param {Draft} draft
 * @param {string} key
 * @returns {Promise<{namespace: string, name: string, kind: string, uid: string} | null>} the job; null if there is none among what was made
 */
async function createJob(draft, key) {
  const headers = { "idempotency-key": key };
  if (draft.mode === "yaml") {
    const done = await request("POST", "manifests", { query: { namespace: draft.namespace }, body: { manifests: draft.yaml } });
    const jobs = done.items.filter((/** @type {import("../api.js").SentObject} */ one) => /Job$/.test(one.kind) && !["Job"].includes(one.kind));
    return jobs.at(-1) ?? null;
  }
  if (draft.source === "archive") {
    const type = archive?.name.endsWith(".zip") ? "application/zip" : "application/gzip";
    const response = await open("POST", "jobs/from-archive", { query: buildArchiveQuery(draft), raw: archive?.bytes ?? new ArrayBuffer(0), headers: { ...headers, "content-type": type } });
    return { kind: "TrainJob", ...(await response.json()) };
  }
  return { kind: "TrainJob", ...(await request("POST", "jobs", { body: buildRequest(draft), headers })) };
}

/** @param {{draft: Draft, preview: string | null, onEdit: (yaml: string) => void}} props */
function Same({ draft, preview, onEdit }) {
  const curl = buildCurl(draft);
  return html`<section class="same" aria-label=${t("new.same")}>
    <h2>${t("new.same")}</h2>
    <${Command} command=${buildCommand(draft)} />
    <details><summary>curl</summary><div class="with-copy"><pre tabindex="0">${curl}</pre><${Copy} text=${curl} /></div></details>
    ${preview ? html`<details><summary>YAML</summary><p><button type="button" onClick=${() => onEdit(preview)}>${t("new.edit")}</button></p><div class="with-copy"><pre tabindex="0">${preview}</pre><${Copy} text=${preview} /></div></details>` : null}
  </section>`;
}
