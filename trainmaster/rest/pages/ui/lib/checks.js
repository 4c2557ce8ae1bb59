// Asks the server what would become of a new job, a moment after the last key, and keeps the newest answer.
import { useEffect, useRef, useState } from "../html.js";
import { ApiProblem, request } from "./api.js";
import { buildRequest } from "./new_job.js";

/** @typedef {import("../api.js").CheckAnswer} CheckAnswer */
/** @typedef {import("./new_job.js").Draft} Draft */
/** @typedef {{answer: CheckAnswer | null, problem: ApiProblem | null, isChecking: boolean}} Check */

const PAUSE_MS = 500;

/**
 * The body of a check; null if there is nothing to check yet.
 * @param {Draft} draft
 */
export function buildCheck(draft) {
  if (draft.mode === "yaml") return draft.yaml.trim() ? { manifests: draft.yaml } : null;
  // What is in an archive is seen when it is sent.
  const job = draft.source === "archive" ? { ...buildRequest(draft), code: "pass\n" } : buildRequest(draft);
  const isBegun = draft.source === "code" ? draft.code.trim() : draft.source === "archive" || Object.keys(draft.files).length;
  return isBegun && draft.runtime ? { job } : null;
}

/**
 * @param {Draft} draft
 * @returns {Check}
 */
export function useCheck(draft) {
  const [state, setState] = useState(/** @type {Check} */ ({ answer: null, problem: null, isChecking: false }));
  const body = buildCheck(draft);
  const text = JSON.stringify(body);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!body) {
      setState({ answer: null, problem: null, isChecking: false });
      return undefined;
    }
    const controller = new AbortController();
    setState((before) => ({ ...before, isChecking: true }));
    const check = async () => {
      try {
        const answer = await request("POST", "check", { query: { namespace: draft.namespace }, body, signal: controller.signal });
        if (!controller.signal.aborted) setState({ answer, problem: null, isChecking: false });
      } catch (error) {
        if (controller.signal.aborted) return;
        if (!(error instanceof ApiProblem)) throw error;
        setState({ answer: null, problem: error, isChecking: false });
      }
    };
    const timer = setTimeout(check, isFirst.current ? 0 : PAUSE_MS);
    isFirst.current = false;
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text, draft.namespace]);
  return state;
}
