// A new job as a person describes it in the form, and what that is as a request, as a command and as curl. Pure.
import { buildUrl } from "./api.js";

/**
 * @typedef {object} Draft texts as they were typed
 * @property {"form" | "yaml"} mode
 * @property {string} namespace
 * @property {string} name
 * @property {string} runtime KIND/NAME
 * @property {string} nodes
 * @property {string} gpus
 * @property {string} processes
 * @property {string} cpu
 * @property {string} memory
 * @property {string} arguments
 * @property {string} env lines of NAME=VALUE
 * @property {string} ttl
 * @property {string} queue
 * @property {"code" | "files" | "archive"} source
 * @property {string} entrypoint
 * @property {string} code
 * @property {Record<string, string>} files
 * @property {string} archive its name; its bytes are not kept over a reload
 * @property {string} yaml
 */

/** @type {Draft} */
export const EMPTY = {
  mode: "form",
  namespace: "",
  name: "",
  runtime: "",
  nodes: "1",
  gpus: "0",
  processes: "",
  cpu: "",
  memory: "",
  arguments: "",
  env: "",
  ttl: "",
  queue: "",
  source: "code",
  entrypoint: "train.py",
  code: "",
  files: {},
  archive: "",
  yaml: "",
};

/**
 * What is stored may come from another version, so only what has the right type counts.
 * @param {unknown} stored
 * @returns {Draft}
 */
export function parseDraft(stored) {
  const found = /** @type {Record<string, unknown>} */ ({ ...EMPTY });
  if (stored && typeof stored === "object") {
    for (const [name, value] of Object.entries(stored)) {
      if (Object.hasOwn(EMPTY, name) && typeof value === typeof found[name] && value !== null) found[name] = value;
    }
  }
  const draft = /** @type {Draft} */ (/** @type {unknown} */ (found));
  if (!["form", "yaml"].includes(draft.mode)) draft.mode = "form";
  if (!["code", "files", "archive"].includes(draft.source)) draft.source = "code";
  return draft;
}

/**
 * Words as a shell splits them: spaces separate, quotes and backslashes keep together.
 * @param {string} text
 */
export function splitWords(text) {
  /** @type {string[]} */
  const words = [];
  let word = "";
  let isOpen = false;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at] ?? "";
    if (quote) {
      if (sign === quote) quote = "";
      else if (sign === "\\" && quote === '"' && ['"', "\\"].includes(text[at + 1] ?? "")) word += text[(at += 1)];
      else word += sign;
    } else if (sign === "'" || sign === '"') {
      quote = sign;
      isOpen = true;
    } else if (sign === "\\" && at + 1 < text.length) {
      word += text[(at += 1)];
      isOpen = true;
    } else if (/\s/.test(sign)) {
      if (isOpen || word) words.push(word);
      word = "";
      isOpen = false;
    } else word += sign;
  }
  if (isOpen || word) words.push(word);
  return words;
}

/** @param {string} word as one word of a shell */
export function quoteWord(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {string} text lines of NAME=VALUE
 * @returns {{env: Record<string, string>, wrong: string[]}} lines without a name are wrong
 */
export function parseVariables(text) {
  /** @type {[string, string][]} */
  const found = [];
  /** @type {string[]} */
  const wrong = [];
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const cut = line.indexOf("=");
    if (cut < 1) wrong.push(line);
    else found.push([line.slice(0, cut).trim(), line.slice(cut + 1)]);
  }
  // Whatever a name is, it is an ordinary one.
  return { env: Object.fromEntries(found), wrong };
}

/** @type {Record<string, number>} */
const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 };

/**
 * @param {string} text 30m, 12h, 7d, or seconds
 * @returns {number | null} null if it is none
 */
export function parseSpan(text) {
  const found = /^\s*(\d{1,9})\s*([smhd]?)\s*$/.exec(text);
  return found ? Number(found[1]) * (SECONDS[found[2] || "s"] ?? 1) : null;
}

/** @param {string} text */
function toNumber(text) {
  const trimmed = text.trim();
  // What is no number is sent as it is, so that the server says what is wrong with it.
  return /^-?\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
}

/**
 * The body of POST /api/v1/jobs.
 * @param {Draft} draft
 * @returns {Record<string, unknown>}
 */
export function buildRequest(draft) {
  const { env } = parseVariables(draft.env);
  const words = splitWords(draft.arguments);
  const cut = draft.runtime.indexOf("/");
  /** @type {Record<string, unknown>} */
  const config = { num_nodes: toNumber(draft.nodes || "1") };
  if (draft.gpus.trim() && draft.gpus.trim() !== "0") config.gpu_per_node = toNumber(draft.gpus);
  if (draft.cpu.trim()) config.cpu_per_node = draft.cpu.trim();
  if (draft.memory.trim()) config.memory_per_node = draft.memory.trim();
  /** @type {Record<string, unknown>} */
  const body = { namespace: draft.namespace, runtime: draft.runtime.slice(cut + 1), config };
  if (draft.runtime.startsWith("TrainingRuntime/")) body.runtime_kind = "TrainingRuntime";
  if (draft.name.trim()) body.name = draft.name.trim();
  if (draft.source === "code") body.code = draft.code;
  if (draft.source === "files") body.files = draft.files;
  if (draft.entrypoint && draft.entrypoint !== "train.py") body.entrypoint = draft.entrypoint;
  if (words.length) body.arguments = words;
  if (Object.keys(env).length) body.env = env;
  if (draft.processes.trim()) body.processes_per_node = toNumber(draft.processes);
  if (draft.ttl.trim()) body.ttl_seconds = parseSpan(draft.ttl) ?? draft.ttl;
  if (draft.queue.trim()) body.queue = draft.queue.trim();
  return body;
}

/**
 * The query of POST /api/v1/jobs/from-archive.
 * @param {Draft} draft
 * @returns {import("./api.js").Query}
 */
export function buildArchiveQuery(draft) {
  const { config, env, ...body } = buildRequest(draft);
  const variables = Object.entries(/** @type {Record<string, string>} */ (env ?? {})).map(([name, value]) => `${name}=${value}`);
  return /** @type {import("./api.js").Query} */ ({ ...body, .../** @type {object} */ (config), env: variables });
}

/**
 * The command that does the same.
 * @param {Draft} draft
 */
export function buildCommand(draft) {
  const place = draft.namespace ? ["-n", draft.namespace] : [];
  if (draft.mode === "yaml") return ["trainmaster", "submit", "-f", "job.yaml", ...place].map(quoteWord).join(" ");
  const { env } = parseVariables(draft.env);
  /** @type {[string, string][]} */
  const pairs = [
    ["--name", draft.name],
    ["--runtime", draft.runtime.slice(draft.runtime.indexOf("/") + 1)],
    ["--nodes", draft.nodes === "1" ? "" : draft.nodes],
    ["--nproc", draft.processes],
    ["--gpu", draft.gpus === "0" ? "" : draft.gpus],
    ["--cpu", draft.cpu],
    ["--memory", draft.memory],
    ...Object.entries(env).map(([name, value]) => /** @type {[string, string]} */ (["--env", `${name}=${value}`])),
    ["--ttl", draft.ttl],
    ["--label", draft.queue ? `kueue.x-k8s.io/queue-name=${draft.queue}` : ""],
  ];
  const options = pairs.filter(([, value]) => value.trim()).flatMap(([option, value]) => [option, value.trim()]);
  return ["trainmaster", "run", ...options, ...place, draft.entrypoint, ...splitWords(draft.arguments)].map(quoteWord).join(" ");
}

/**
 * The request that does the same, with a token in $TOKEN.
 * @param {Draft} draft
 */
export function buildCurl(draft) {
  const head = 'curl -sS --fail-with-body -H "Authorization: Bearer $TOKEN"';
  const json = "-H 'Content-Type: application/json' --data-binary @-";
  if (draft.mode === "yaml") {
    const url = buildUrl("manifests", { namespace: draft.namespace });
    return `jq -Rs '{manifests: .}' job.yaml |\n  ${head} ${json} ${quoteWord(url.href)}`;
  }
  if (draft.source === "archive") {
    const url = buildUrl("jobs/from-archive", buildArchiveQuery(draft));
    const type = draft.archive.endsWith(".zip") ? "zip" : "gzip";
    return `${head} -H 'Content-Type: application/${type}' \\\n  --data-binary @${quoteWord(draft.archive || "code.tar.gz")} ${quoteWord(url.href)}`;
  }
  const body = JSON.stringify(buildRequest(draft), null, 1);
  return `${head} ${json} ${quoteWord(buildUrl("jobs").href)} <<'BODY'\n${body}\nBODY`;
}

/**
 * my-job-2 for my-job, my-job-3 for my-job-2.
 * @param {string} name
 */
export function proposeName(name) {
  const found = /^(.+)-(\d{1,6})$/.exec(name);
  const base = found?.[1] ?? name;
  const number = found ? Number(found[2]) + 1 : 2;
  return `${base.slice(0, 43 - String(number).length).replace(/-+$/, "")}-${number}`;
}
