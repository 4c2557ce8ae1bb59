// The code of a job: its files, the commit it comes from, and what differs from another run.
import { html, useEffect, useState } from "../html.js";
import { ApiProblem, get } from "../lib/api.js";
import { askDiff } from "../lib/diffs.js";
import { buildSource } from "../lib/downloads.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { toVisible } from "../lib/log_text.js";
import { replaceQuery, route } from "../lib/router.js";
import { Copy, Empty, Given, Loading, Problem } from "./basics.js";
import { Files, readPreview } from "./files.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */
/** @typedef {import("../lib/downloads.js").FileSource} FileSource */
/** @typedef {import("../api.js").CodeEntries} CodeEntries */
/** @typedef {{path: string, kind: "added" | "removed" | "changed", lines: import("../lib/diff.js").DiffLine[], note: string}} FileDifference */

const MOST_FILES = 200;

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null}} props */
export function Code({ data, live }) {
  const source = buildSource(data, live !== null);
  const other = route.value.query.get("with") ?? "";
  /** @type {import("../lib/load.js").Loaded<CodeEntries>} */
  const { value, problem } = useLoaded((signal) => get(`${source.path}/code`, source.query, signal), [source.path]);
  if (!value) return problem ? html`<${Problem} problem=${problem} />` : html`<${Loading} />`;
  return html`
    <${Origin} code=${value} />
    ${value.items.length ? html`<${Chooser} data=${data} other=${other} />` : null}
    ${other && value.items.length ? html`<${Comparison} key=${other} source=${source} code=${value} data=${data} other=${other} />` : null}
    <${Files} source=${source} what="code" files=${value} empty=${t("code.none")} />`;
}

/** @param {{code: CodeEntries}} props */
function Origin({ code }) {
  if (!code.source && !code.git_commit) return null;
  return html`<p class="origin">
    ${code.source ? html`<span>${t(`code.source.${code.source}`)}</span>` : null}
    ${code.git_commit ? html`<span>${t("code.commit")} <code>${code.git_commit.slice(0, 12)}</code><${Copy} text=${code.git_commit} />${code.git_dirty ? html` <span class="badge warn">${t("code.dirty")}</span>` : null}</span>` : null}
    ${code.digest ? html`<span class="quiet"><code title=${code.digest}>${code.digest.slice(0, 19)}</code><${Copy} text=${code.digest} /></span>` : null}
  </p>`;
}

/** @param {{data: JobDetail | RecordDetail, other: string}} props */
function Chooser({ data, other }) {
  const [text, setText] = useState(other);
  /** @param {AbortSignal} signal */
  const load = async (signal) => {
    const wanted = { namespace: data.namespace, limit: 100 };
    const [jobs, records] = await Promise.all([get("jobs", wanted, signal), get("history", wanted, signal)]);
    const names = [...jobs.items, ...records.items].map((/** @type {{name: string}} */ one) => one.name);
    return [...new Set(names)].filter((name) => name !== data.name);
  };
  const { value } = useLoaded(load, [data.namespace, data.name]);
  /** @param {Event} event */
  const choose = (event) => {
    event.preventDefault();
    replaceQuery({ with: text.trim() || null });
  };
  return html`<form class="filters" onSubmit=${choose}>
    <label>${t("code.with")} <input list="other-runs" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    <datalist id="other-runs">${(value ?? []).map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    <button type="submit">${t("code.compare")}</button>
    ${other ? html`<button type="button" class="bare" onClick=${() => (setText(""), replaceQuery({ with: null }))}>${t("close")}</button>` : null}
  </form>`;
}

/** @param {{source: FileSource, code: CodeEntries, data: JobDetail | RecordDetail, other: string}} props */
function Comparison({ source, code, data, other }) {
  const [found, setFound] = useState(/** @type {FileDifference[] | null} */ (null));
  const [problem, setProblem] = useState(/** @type {ApiProblem | null} */ (null));
  useEffect(() => {
    const controller = new AbortController();
    compare(source, code, data.namespace, other, controller.signal).then(
      (differences) => controller.signal.aborted || setFound(differences),
      (error) => {
        if (controller.signal.aborted) return;
        if (!(error instanceof ApiProblem)) throw error;
        setProblem(error);
      },
    );
    return () => controller.abort();
  }, []);
  if (problem) return html`<${Problem} problem=${problem} />`;
  if (!found) return html`<${Loading} />`;
  if (!found.length) return html`<${Empty}>${t("code.same", { name: other })}<//>`;
  return html`<section class="comparison" aria-label=${t("code.compare")}>
    <p class="quiet">${t("code.differs", { n: found.length, name: other })}</p>
    ${found.map((one) => html`<${Difference} key=${one.path} found=${one} />`)}
  </section>`;
}

/** @param {{found: FileDifference}} props */
function Difference({ found }) {
  return html`<details open><summary><span class="badge">${t(`code.${found.kind}`)}</span> <code><${Given} text=${found.path} /></code></summary>
    ${found.note ? html`<p class="quiet">${found.note}</p>` : null}
    ${found.lines.length ? html`<pre class="diff" tabindex="0">${found.lines.map((line, at) => html`<span key=${at} class="diff-${line.kind}">${SIGNS[line.kind]}${toVisible(line.text)}</span>`)}</pre>` : null}
  </details>`;
}

/** @type {Record<string, string>} */
const SIGNS = { same: "  ", added: "+ ", removed: "- ", gap: "⋯" };

/**
 * From the other run to this one. Files of the same hash are not read.
 * @param {FileSource} source
 * @param {CodeEntries} code
 * @param {string} namespace
 * @param {string} other
 * @param {AbortSignal} signal
 * @returns {Promise<FileDifference[]>}
 */
async function compare(source, code, namespace, other, signal) {
  const [before, old] = await findOther(namespace, other, signal);
  const left = new Map(old.items.map((file) => [file.path, file]));
  const right = new Map(code.items.map((file) => [file.path, file]));
  const paths = [...new Set([...left.keys(), ...right.keys()])].sort();
  const different = paths.filter((path) => !isSame(left.get(path), right.get(path)));
  /** @type {FileDifference[]} */
  const found = [];
  for (const path of different.slice(0, MOST_FILES)) {
    const kind = !left.has(path) ? "added" : !right.has(path) ? "removed" : "changed";
    const [was, is] = await Promise.all([
      left.has(path) ? readText(before, path, signal) : "",
      right.has(path) ? readText(source, path, signal) : "",
    ]);
    const isText = was !== null && is !== null;
    const lines = isText ? await askDiff(was, is) : [];
    if (kind !== "changed" || !isText || lines.length) found.push({ path, kind, lines, note: isText ? "" : t("code.binary") });
  }
  return found;
}

/** @param {import("../api.js").FileEntry | undefined} one @param {import("../api.js").FileEntry | undefined} other */
function isSame(one, other) {
  return Boolean(one && other && one.link === other.link && (one.link || (one.sha256 && one.sha256 === other.sha256)));
}

/**
 * A job of that name, else the newest record of one.
 * @param {string} namespace
 * @param {string} name
 * @param {AbortSignal} signal
 * @returns {Promise<[FileSource, CodeEntries]>}
 */
async function findOther(namespace, name, signal) {
  const live = buildSource({ namespace, name, kind: "", uid: "" }, true);
  try {
    return [live, await get(`${live.path}/code`, live.query, signal)];
  } catch (error) {
    if (!(error instanceof ApiProblem) || error.status !== 404) throw error;
  }
  const records = await get("history", { namespace, name, limit: 1 }, signal);
  const record = records.items[0];
  if (!record) throw new ApiProblem({ status: 404, detail: t("code.unknown", { name }) });
  const kept = buildSource(record, false);
  return [kept, await get(`${kept.path}/code`, kept.query, signal)];
}

/**
 * @param {FileSource} source
 * @param {string} path
 * @param {AbortSignal} signal
 * @returns {Promise<string | null>} null for what is no text
 */
async function readText(source, path, signal) {
  try {
    const found = await readPreview(source, "code", path, signal);
    return found.kind === "text" ? found.text : null;
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 415) return null;
    throw error;
  }
}
