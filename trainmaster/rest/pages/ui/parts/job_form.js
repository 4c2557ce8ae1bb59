// The form of a new job: where it runs, what it needs, and its code, pasted, dropped or as an archive.
import { html, useState } from "../html.js";
import { get } from "../lib/api.js";
import { formatBytes } from "../lib/quantity.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { parseSpan, parseVariables } from "../lib/new_job.js";
import { session } from "../lib/session.js";
import { addToast } from "../lib/toasts.js";
import { Choice, Given } from "./basics.js";
import { Icon } from "./icons.js";
import { TextEditor } from "./text_editor.js";

/** @typedef {import("../lib/new_job.js").Draft} Draft */
/** @typedef {{pointer?: string | null, detail: string}} FieldProblem */
/** @typedef {{draft: Draft, problems: FieldProblem[], onChange: (changes: Partial<Draft>) => void, onArchive: (file: File) => void}} FormProps */

const MOST_FILE_BYTES = 1_000_000;
const ARCHIVE = /\.(zip|tgz|tar\.gz)$/i;

/** @param {FormProps} props */
export function JobForm({ draft, problems, onChange, onArchive }) {
  const { server, namespaces } = session.value;
  const text = { draft, problems, onChange };
  const { wrong } = parseVariables(draft.env);
  const own = wrong.length ? t("new.env.wrong", { line: wrong[0] ?? "" }) : "";
  const span = draft.ttl.trim() && parseSpan(draft.ttl) === null ? t("new.ttl.wrong") : "";
  return html`<form class="job-form" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <fieldset><legend>${t("new.where")}</legend>
      <${Runtime} ...${text} />
      ${namespaces.length > 1 ? html`<${Field} name="namespace" label=${t("column.namespace")} problems=${problems}>
        <select id="field-namespace" value=${draft.namespace} onChange=${(/** @type {any} */ event) => onChange({ namespace: event.target.value })}>${namespaces.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select><//>` : null}
      <${Text} ...${text} name="name" label=${t("column.name")} hint=${t("new.name.hint")} />
      ${server?.mode === "cluster" ? html`<${Text} ...${text} name="queue" label=${t("new.queue")} hint=${t("new.queue.hint")} />` : null}
    </fieldset>
    <fieldset><legend>${t("new.needs")}</legend>
      <${Text} ...${text} name="nodes" pointer="config/num_nodes" label=${t("column.nodes")} isNumber />
      <${Text} ...${text} name="gpus" pointer="config/gpu_per_node" label=${t("new.gpus")} isNumber />
      <${Text} ...${text} name="processes" pointer="processes_per_node" label=${t("new.processes")} isNumber />
      <${Text} ...${text} name="cpu" pointer="config/cpu_per_node" label=${t("new.cpu")} example="4" />
      <${Text} ...${text} name="memory" pointer="config/memory_per_node" label=${t("new.memory")} example="16Gi" />
      <${Text} ...${text} name="ttl" pointer="ttl_seconds" label=${t("new.ttl")} example="7d" own=${span} />
    </fieldset>
    <fieldset class="wide"><legend>${t("new.program")}</legend>
      <${Choice} label=${t("new.code")} value=${draft.source} choices=${[["code", t("new.paste")], ["files", t("new.files")], ["archive", t("new.archive")]]} onChoose=${(/** @type {any} */ source) => onChange({ source })} />
      <${Source} draft=${draft} problems=${problems} onChange=${onChange} onArchive=${onArchive} />
      <${Text} ...${text} name="arguments" label=${t("new.arguments")} example="--epochs 3 --lr 0.1" />
      <${Field} name="env" label=${t("new.env")} problems=${problems} own=${own}>
        <textarea id="field-env" rows="3" spellcheck=${false} placeholder="EPOCHS=3" value=${draft.env} onInput=${(/** @type {any} */ event) => onChange({ env: event.target.value })}></textarea><//>
    </fieldset>
  </form>`;
}

/** @param {FormProps} props */
function Runtime({ draft, problems, onChange }) {
  const { value } = useLoaded((signal) => get("runtimes", { namespace: draft.namespace }, signal), [draft.namespace]);
  /** @type {import("../api.js").Runtime[]} */
  const runtimes = value?.items ?? [];
  const choices = runtimes.map((one) => `${one.kind}/${one.name}`);
  const all = draft.runtime && !choices.includes(draft.runtime) ? [draft.runtime, ...choices] : choices;
  return html`<${Field} name="runtime" label=${t("column.runtime")} problems=${problems}>
    <select id="field-runtime" value=${draft.runtime} onChange=${(/** @type {any} */ event) => onChange({ runtime: event.target.value })}>
      <option value="">${t("new.runtime.choose")}</option>
      ${all.map((one) => html`<option key=${one} value=${one}>${one.slice(one.indexOf("/") + 1)}</option>`)}
    </select><//>`;
}

/**
 * A labelled field with what is wrong with it.
 * @param {{name: string, label: string, problems: FieldProblem[], pointer?: string, hint?: string, own?: string, children?: unknown}} props
 */
function Field({ name, label, problems, pointer = name, hint = "", own = "", children }) {
  const found = problems.filter((one) => one.pointer === `/${pointer}` || one.pointer?.startsWith(`/${pointer}/`)).map((one) => one.detail);
  const texts = own ? [own] : found;
  return html`<div class=${texts.length ? "form-field wrong" : "form-field"}>
    <label for=${`field-${name}`}>${label}</label>
    ${children}
    ${texts.map((text) => html`<p key=${text} class="field-problem" id=${`problem-${name}`}><${Given} text=${text} /></p>`)}
    ${hint && !texts.length ? html`<p class="hint">${hint}</p>` : null}
  </div>`;
}

/**
 * @param {object} props
 * @param {Draft} props.draft
 * @param {FieldProblem[]} props.problems
 * @param {(changes: Partial<Draft>) => void} props.onChange
 * @param {"name" | "queue" | "nodes" | "gpus" | "processes" | "cpu" | "memory" | "ttl" | "arguments" | "entrypoint"} props.name
 * @param {string} props.label
 * @param {string} [props.pointer]
 * @param {string} [props.hint]
 * @param {string} [props.example]
 * @param {string} [props.own]
 * @param {boolean} [props.isNumber]
 */
function Text({ draft, problems, onChange, name, label, pointer = name, hint = "", example = "", own = "", isNumber = false }) {
  return html`<${Field} name=${name} label=${label} problems=${problems} pointer=${pointer} hint=${hint} own=${own}>
    <input id=${`field-${name}`} value=${draft[name]} placeholder=${example} inputmode=${isNumber ? "numeric" : undefined} spellcheck=${false} autocomplete="off"
      onInput=${(/** @type {any} */ event) => onChange({ [name]: event.target.value })} /><//>`;
}

/** @param {FormProps} props */
function Source({ draft, problems, onChange, onArchive }) {
  const [isOver, setOver] = useState(false);
  const code = problems.filter((one) => ["/code", "/files", "/archive", "/entrypoint"].includes(one.pointer ?? ""));
  const marks = code.flatMap((one) => {
    const line = /\bline (\d+)/.exec(one.detail);
    return line ? [{ line: Number(line[1]), text: one.detail, kind: /** @type {const} */ ("error") }] : [];
  });
  /** @param {FileList | File[]} files */
  const take = (files) => takeFiles([...files], draft, onChange, onArchive);
  /** @param {DragEvent} event */
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    if (event.dataTransfer?.files.length) take(event.dataTransfer.files);
  };
  /** @param {DragEvent} event */
  const enter = (event) => {
    event.preventDefault();
    setOver(true);
  };
  const drag = { onDrop: drop, onDragOver: enter, onDragLeave: () => setOver(false) };
  return html`<div class=${isOver ? "drop over" : "drop"} ...${drag}>
    ${draft.source === "code" ? html`<${TextEditor} id="code" label=${t("new.code")} value=${draft.code} marks=${marks} onInput=${(/** @type {string} */ text) => onChange({ code: text })} />` : null}
    ${draft.source === "files" ? html`<${Chosen} draft=${draft} onChange=${onChange} />` : null}
    ${draft.source === "archive" && draft.archive ? html`<p><code><${Given} text=${draft.archive} /></code></p>` : null}
    ${draft.source === "code" ? html`<p class="hint">${t("new.drop")}</p>` : html`<label class="file-button">${draft.source === "archive" ? t("new.archive.choose") : t("new.files.choose")}
      <input type="file" class="unseen" multiple=${draft.source === "files"} accept=${draft.source === "archive" ? ".zip,.tgz,.tar.gz" : undefined} onChange=${(/** @type {any} */ event) => take(event.target.files)} /></label>
      <span class="hint"> ${t("new.drop")}</span>`}
    ${draft.source === "code" ? null : html`<${Text} draft=${draft} problems=${[]} onChange=${onChange} name="entrypoint" label=${t("new.entrypoint")} />`}
    ${code.map((one) => html`<p key=${one.detail} class="field-problem"><${Given} text=${one.detail} /></p>`)}
  </div>`;
}

/** @param {{draft: Draft, onChange: (changes: Partial<Draft>) => void}} props */
function Chosen({ draft, onChange }) {
  const names = Object.keys(draft.files).sort();
  /** @param {string} name */
  const remove = (name) => onChange({ files: Object.fromEntries(Object.entries(draft.files).filter(([one]) => one !== name)) });
  if (!names.length) return null;
  return html`<ul class="chosen-files">${names.map((name) => html`<li key=${name}><code><${Given} text=${name} /></code> <span class="quiet">${formatBytes(new Blob([draft.files[name] ?? ""]).size)}</span>
    <button type="button" class="bare" onClick=${() => remove(name)} aria-label=${t("new.files.remove", { name })}><${Icon} name="close" /></button></li>`)}</ul>`;
}

/**
 * An archive is sent as it is; texts are kept with what was typed. Whatever else it is has to be in an archive.
 * @param {File[]} files
 * @param {Draft} draft
 * @param {(changes: Partial<Draft>) => void} onChange
 * @param {(file: File) => void} onArchive
 */
async function takeFiles(files, draft, onChange, onArchive) {
  const packed = files.find((file) => ARCHIVE.test(file.name));
  if (packed) {
    onArchive(packed);
    return;
  }
  /** @type {[string, string][]} */
  const found = [];
  for (const file of files) {
    const text = file.size <= MOST_FILE_BYTES ? await readText(file) : null;
    if (text === null) addToast("problem", t("new.files.binary", { name: file.name }));
    else found.push([file.webkitRelativePath || file.name, text]);
  }
  if (!found.length) return;
  const only = found.length === 1 && draft.source === "code" ? found[0] : undefined;
  if (only) onChange({ code: only[1] });
  else onChange({ source: "files", files: { ...(draft.source === "files" ? draft.files : {}), ...Object.fromEntries(found) }, ...chooseEntry(found, draft) });
}

/**
 * @param {[string, string][]} found
 * @param {Draft} draft
 * @returns {Partial<Draft>}
 */
function chooseEntry(found, draft) {
  const names = found.map(([name]) => name);
  if (names.includes(draft.entrypoint) || Object.hasOwn(draft.files, draft.entrypoint)) return {};
  const program = names.find((name) => name.endsWith(".py"));
  return program ? { entrypoint: program } : {};
}

/** @param {File} file */
async function readText(file) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    return null;
  }
}
