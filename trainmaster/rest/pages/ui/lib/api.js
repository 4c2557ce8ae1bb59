// Requests to the REST API of the server that this page comes from. Every one has the login's key beside its cookie.
import { readStored, writeStored } from "./storage.js";

/** @typedef {import("../api.js").ProblemDocument} ProblemDocument */

const KEY = "trainmaster.login";
const HEADER = "x-trainmaster-login";

/** Relative to the page, whatever prefix a proxy has put before it. */
const ROOT = new URL("../api/v1/", document.baseURI);

/** An answer that is not the wanted one, in the server's words. */
export class ApiProblem extends Error {
  /**
   * @param {Partial<ProblemDocument> & {status: number}} document
   * @param {number} [retryAfter] seconds
   */
  constructor(document, retryAfter) {
    super(document.detail || document.title || `HTTP ${document.status}`);
    this.status = document.status;
    this.type = (document.type ?? "").split(":").at(-1) ?? "";
    this.hint = document.hint ?? "";
    this.errors = document.errors ?? [];
    this.requestId = document.request_id ?? "";
    this.retryAfter = retryAfter;
  }

  /** Whether nobody answered, so that the same request may work a little later. */
  get isUnreachable() {
    return this.status === 0 || this.status >= 502;
  }
}

/** @type {(problem: ApiProblem) => void} */
let onRefused = () => {};

/** @param {(problem: ApiProblem) => void} listener is told when a request says that the login is no longer valid */
export function listenForRefusals(listener) {
  onRefused = listener;
}

export const hasKey = () => readStored(KEY) !== null;

/** @param {string | null} key */
export function storeKey(key) {
  writeStored(KEY, key);
}

/** @typedef {Record<string, string | number | boolean | string[] | null | undefined>} Query */

/**
 * @param {string} path below /api/v1
 * @param {Query} [query]
 */
export function buildUrl(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, String(one));
    }
  }
  return url;
}

/**
 * @typedef {object} Options
 * @property {Query} [query]
 * @property {unknown} [body] sent as JSON
 * @property {ArrayBuffer} [raw] sent as it is, in place of a body
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {boolean} [anonymous] a refusal does not end the login: it is the request to log in
 */

/**
 * The response as it comes, if it is a good one. Throws ApiProblem.
 * @param {string} method
 * @param {string} path below /api/v1
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function open(method, path, { query, body, raw, headers = {}, signal, anonymous = false } = {}) {
  /** @type {Record<string, string>} */
  const all = { ...headers };
  const key = readStored(KEY);
  if (key && !anonymous) all[HEADER] = key;
  if (body !== undefined) all["content-type"] = "application/json";
  /** @type {RequestInit} */
  const init = { method, headers: all, cache: "no-store", credentials: "same-origin", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  else if (raw) init.body = raw;
  if (signal) init.signal = signal;
  let response;
  try {
    response = await fetch(buildUrl(path, query), init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiProblem({ status: 0, type: "unreachable" });
  }
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (problem.status === 401 && !anonymous) onRefused(problem);
  throw problem;
}

/** @param {Response} response */
async function readProblem(response) {
  /** @type {Partial<ProblemDocument>} */
  let document = {};
  try {
    const found = await response.json();
    if (found && typeof found === "object") document = found;
  } catch {
    document = {};
  }
  const wait = Number(response.headers.get("retry-after") ?? NaN);
  return new ApiProblem({ ...document, status: response.status }, Number.isFinite(wait) ? wait : undefined);
}

/**
 * The body of the answer, or null if it has none. Throws ApiProblem.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, options) {
  const response = await open(method, path, options);
  return response.status === 204 ? null : response.json();
}

/**
 * @param {string} path
 * @param {Query} [query]
 * @param {AbortSignal} [signal]
 */
export function get(path, query, signal) {
  return request("GET", path, { ...(query ? { query } : {}), ...(signal ? { signal } : {}) });
}
