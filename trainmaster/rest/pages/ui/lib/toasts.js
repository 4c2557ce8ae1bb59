// Messages that come and go: what went wrong, and what was done.
import { signal } from "../html.js";
import { ApiProblem } from "./api.js";
import { t } from "./i18n.js";

/**
 * @typedef {object} Toast
 * @property {number} id
 * @property {"problem" | "done"} kind
 * @property {string} text
 * @property {string} hint
 */

const DONE_MS = 6_000;

/** @type {import("../html.js").Signal<Toast[]>} */
export const toasts = signal([]);

let last = 0;

/**
 * Problems stay until somebody closes them.
 * @param {"problem" | "done"} kind
 * @param {string} text
 * @param {string} [hint]
 */
export function addToast(kind, text, hint = "") {
  last += 1;
  const id = last;
  const others = toasts.value.filter((toast) => toast.text !== text);
  toasts.value = [...others.slice(-3), { id, kind, text, hint }];
  if (kind === "done") setTimeout(() => removeToast(id), DONE_MS);
}

/** @param {number} id */
export function removeToast(id) {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

/**
 * Shows what an action was answered. What is no answer of the server is a mistake of this page, and is thrown.
 * @param {unknown} error
 */
export function showProblem(error) {
  if (!(error instanceof ApiProblem)) throw error;
  addToast("problem", describeProblem(error), error.hint);
}

/** @param {{status: number, type?: string, message?: string, detail?: string}} problem */
export function describeProblem(problem) {
  if (problem.status === 0) return t("problem.unreachable");
  const text = problem.message || problem.detail;
  return text && !text.startsWith("HTTP ") ? text : t("problem.status", { status: String(problem.status) });
}
