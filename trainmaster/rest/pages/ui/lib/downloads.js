// Saves a file of a job. The browser fetches it by itself, without headers, so it gets a ticket that serves once.
import { buildUrl, request } from "./api.js";
import { showProblem } from "./toasts.js";

/**
 * @typedef {object} FileSource where files of a job are asked for
 * @property {string} path below /api/v1: `jobs/NAME` or `history/UID`
 * @property {{namespace: string, kind?: string}} query
 * @property {{job: string, kind?: string} | {record: string}} owner for tickets
 */

/**
 * @param {{namespace: string, name: string, kind: string, uid: string}} job
 * @param {boolean} isLive
 * @returns {FileSource}
 */
export function buildSource(job, isLive) {
  if (isLive) {
    const { kind, namespace, name } = job;
    return { path: `jobs/${encodeURIComponent(name)}`, query: { namespace, kind }, owner: { job: name, kind } };
  }
  return { path: `history/${encodeURIComponent(job.uid)}`, query: { namespace: job.namespace }, owner: { record: job.uid } };
}

/**
 * @param {FileSource} source
 * @param {"outputs" | "code" | "checkpoints"} what
 * @param {string} path
 */
export async function saveFile(source, what, path) {
  try {
    const { namespace } = source.query;
    const { ticket } = await request("POST", "downloads", { query: { namespace }, body: { ...source.owner, what, path } });
    const link = document.createElement("a");
    link.href = buildUrl("download", { ticket }).href;
    link.download = path.split("/").at(-1) ?? path;
    link.click();
  } catch (error) {
    showProblem(error);
  }
}
