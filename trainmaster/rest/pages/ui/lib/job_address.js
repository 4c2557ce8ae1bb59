// The addresses of jobs in this page, and how the stream names them.
import { buildAddress } from "./router.js";

/**
 * @param {{namespace: string, name: string, uid: string, kind: string}} job
 * @param {Record<string, string | null>} [query]
 */
export function buildJobAddress(job, query = {}) {
  const kind = job.kind === "TrainJob" ? null : job.kind;
  return buildAddress(["job", job.namespace, job.name, job.uid], { kind, ...query });
}

/**
 * Where the page for new jobs has this one as its text.
 * @param {{namespace: string, name: string, uid: string, kind: string}} job
 * @param {boolean} isLive
 */
export function buildCloneAddress(job, isLive) {
  const kind = job.kind === "TrainJob" ? null : job.kind;
  return buildAddress(["new"], { ns: job.namespace, clone: job.name, ...(isLive ? { kind } : { record: job.uid }) });
}

/**
 * @param {"job" | "log" | "usage"} subject
 * @param {{namespace: string, name: string, kind: string}} job
 */
export function buildTopic(subject, job) {
  const kind = job.kind ? `${job.kind}/` : "";
  return `${subject}:${job.namespace}/${kind}${job.name}`;
}
