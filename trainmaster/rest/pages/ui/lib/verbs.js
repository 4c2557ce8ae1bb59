// What can be done to jobs, to one or to many: which of them it applies to, and what came of it.
import { ApiProblem, request } from "./api.js";
import { t } from "./i18n.js";

/** @typedef {"suspend" | "resume" | "restart" | "delete"} Verb */
/** @typedef {{namespace: string, name: string, kind: string, uid: string, state: string, deleting: boolean}} Target */

/** @type {readonly Verb[]} */
export const VERBS = ["suspend", "resume", "restart", "delete"];

const FINAL = ["Complete", "Failed"];
const AT_ONCE = 4;

/**
 * @param {Verb} verb
 * @param {Target} job
 */
export function isApplicable(verb, job) {
  if (job.deleting) return false;
  if (verb === "suspend") return ["Running", "Pending"].includes(job.state);
  if (verb === "resume") return job.state === "Suspended";
  if (verb === "restart") return ["Running", "Pending", ...FINAL].includes(job.state);
  return true;
}

/**
 * @typedef {object} Result
 * @property {Target} job
 * @property {"waiting" | "done" | "failed"} state
 * @property {string} text
 */

/**
 * Does it to all of them, a few at a time.
 * @param {Verb} verb
 * @param {Target[]} jobs
 * @param {(results: Result[]) => void} onChange is told after every answer
 */
export async function applyVerb(verb, jobs, onChange) {
  /** @type {Result[]} */
  const results = jobs.map((job) => ({ job, state: "waiting", text: "" }));
  onChange([...results]);
  let next = 0;
  const work = async () => {
    while (next < jobs.length) {
      const index = next;
      next += 1;
      const job = jobs[index];
      if (!job) break;
      results[index] = await applyOne(verb, job);
      onChange([...results]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return results;
}

/**
 * @param {Verb} verb
 * @param {Target} job
 * @returns {Promise<Result>}
 */
async function applyOne(verb, job) {
  const path = `jobs/${encodeURIComponent(job.name)}`;
  const query = { namespace: job.namespace, kind: job.kind };
  try {
    if (verb === "delete") {
      await request("DELETE", path, { query });
      return { job, state: "done", text: t("verb.delete.done") };
    }
    // A request whose answer is lost must not start a second job when it is repeated.
    const headers = verb === "restart" ? { "idempotency-key": crypto.randomUUID() } : {};
    const answer = await request("POST", `${path}/${verb}`, { query, headers });
    const isNew = verb === "restart" && answer.created;
    return { job, state: "done", text: isNew ? t("verb.restart.created", { name: answer.name }) : t(`verb.${verb}.done`) };
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    const text = error.status === 0 ? t("problem.unreachable") : [error.message, error.hint].filter(Boolean).join("; ");
    return { job, state: "failed", text };
  }
}
