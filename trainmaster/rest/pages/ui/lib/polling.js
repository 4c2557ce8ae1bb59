// What a stream would have sent, asked for once: for tabs that have no stream.
import { ApiProblem, get } from "./api.js";
import { now as clock } from "./time.js";

/** @typedef {{event: string, data: Record<string, unknown>}} Asked */

const PAGE = 500;
export const TAIL_LINES = 1_000;

/**
 * @param {string} topic
 * @param {import("./api.js").Query} query
 * @param {AbortSignal} signal
 * @returns {Promise<Asked[]>} `snapshot` replaces everything that was known
 */
export async function pollTopic(topic, query, signal) {
  const [subject = "", ...rest] = topic.split(":");
  const parts = rest.join(":").split("/");
  try {
    if (subject === "jobs") return [await listJobs(query, signal)];
    if (subject === "job") return [await readJob(parts, signal)];
    if (subject === "usage") return [await readUsage(parts, signal)];
    if (subject === "machine") return [await readMachine(query, signal)];
    if (subject === "log") return [await readLog(parts, query, signal)];
    return [];
  } catch (error) {
    if (!(error instanceof ApiProblem) || error.isUnreachable || error.status === 401 || error.status === 429) throw error;
    return [{ event: "problem", data: { status: error.status, detail: error.message, hint: error.hint } }];
  }
}

/**
 * @param {import("./api.js").Query} query
 * @param {AbortSignal} signal
 */
async function listJobs(query, signal) {
  const jobs = [];
  let next = "";
  do {
    const page = await get("jobs", { namespace: query.namespace, limit: PAGE, continue: next }, signal);
    jobs.push(...page.items);
    next = page.continue ?? "";
  } while (next);
  return { event: "snapshot", data: { jobs } };
}

/**
 * @param {import("./api.js").Query} query
 * @param {AbortSignal} signal
 */
async function readMachine(query, signal) {
  const [nodes, queue] = await Promise.all([listNodes(signal), get("queue", { namespace: query.namespace }, signal)]);
  return { event: "machine", data: { nodes, queue } };
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<import("../api.js").NodeDetail[] | null>} null if the caller may not list them
 */
async function listNodes(signal) {
  try {
    return (await get("nodes", undefined, signal)).items;
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 403) return null;
    throw error;
  }
}

/** @param {string[]} parts NS/NAME or NS/KIND/NAME */
export function splitReference(parts) {
  const [namespace = "", second = "", third] = parts;
  return third === undefined ? { namespace, kind: "", name: second } : { namespace, kind: second, name: third };
}

/**
 * @param {string[]} parts
 * @param {AbortSignal} signal
 */
async function readJob(parts, signal) {
  const { namespace, kind, name } = splitReference(parts);
  const job = await get(`jobs/${encodeURIComponent(name)}`, { namespace, kind }, signal);
  return { event: "detail", data: { job } };
}

/**
 * @param {string[]} parts
 * @param {import("./api.js").Query} query
 * @param {AbortSignal} signal
 */
async function readLog(parts, query, signal) {
  const { namespace, kind, name } = splitReference(parts);
  const wanted = { namespace, kind, worker: query.worker, attempt: query.attempt, at: "end", before: TAIL_LINES };
  const { lines } = await get(`jobs/${encodeURIComponent(name)}/logs/window`, wanted, signal);
  return { event: "snapshot", data: { lines } };
}

/**
 * @param {string[]} parts
 * @param {AbortSignal} signal
 */
async function readUsage(parts, signal) {
  const { namespace, kind, name } = splitReference(parts);
  const { now } = await get(`jobs/${encodeURIComponent(name)}/usage`, { namespace, kind, range: "now" }, signal);
  const attempt = Math.max(0, ...now.map((/** @type {{attempt: number}} */ one) => one.attempt));
  return { event: "usage", data: { at: Math.floor(clock.peek() / 1000), attempt, now } };
}
