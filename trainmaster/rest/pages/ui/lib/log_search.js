// A search over all lines of a log: the server's hits, and those among the lines that come later.
import { signal } from "../html.js";
import { ApiProblem, get } from "./api.js";
import { toPlain } from "./log_text.js";
import { getLineKey } from "./log_run.js";

/** @typedef {import("./log_run.js").Line} Line */

/**
 * @typedef {object} Found
 * @property {string} sought "": nothing is searched for
 * @property {boolean} isPattern
 * @property {Line[]} hits in their order; of long lines an excerpt
 * @property {"hits" | "time" | null} stopped why the server has not searched everything
 * @property {boolean} isRunning
 * @property {ApiProblem | null} problem
 */

/** @type {Found} */
const NOTHING = { sought: "", isPattern: false, hits: [], stopped: null, isRunning: false, problem: null };
const MOST_HITS = 10_000;
/** While the server does not answer. */
const AGAIN_MS = 2_000;

export class LogSearch {
  found = signal(NOTHING);
  /** @type {Set<string>} */
  #keys = new Set();
  /** @type {Line[]} what has come since the server was asked */
  #later = [];

  /**
   * @param {import("./log_lines.js").Source} source
   * @param {string} sought
   * @param {boolean} isPattern
   * @param {AbortSignal} aborted
   */
  async run(source, sought, isPattern, aborted) {
    this.#keys.clear();
    this.#later = [];
    this.found.value = { ...NOTHING, sought, isPattern, isRunning: sought !== "" };
    if (!sought) return;
    try {
      const answer = await get(`${source.path}/search`, { ...source.query, q: sought, regex: isPattern }, aborted);
      if (aborted.aborted) return;
      this.#keys = new Set(answer.hits.map(getLineKey));
      this.found.value = { ...this.found.value, hits: answer.hits, stopped: answer.stopped, isRunning: false };
      this.#add(this.#later);
    } catch (error) {
      if (aborted.aborted) return;
      if (!(error instanceof ApiProblem)) throw error;
      if (error.isUnreachable) {
        setTimeout(() => aborted.aborted || this.run(source, sought, isPattern, aborted), AGAIN_MS);
        return;
      }
      this.found.value = { ...this.found.value, isRunning: false, problem: error };
    }
  }

  /**
   * Texts are found in what comes, patterns only by the server.
   * @param {Line[]} lines
   */
  take(lines) {
    const { sought, isPattern, isRunning } = this.found.value;
    if (!sought || isPattern) return;
    const wanted = sought.toLowerCase();
    const hits = lines.filter((line) => isFound(line.text, wanted));
    if (isRunning) this.#later.push(...hits);
    else this.#add(hits);
  }

  /** @param {Line[]} lines */
  #add(lines) {
    const { hits } = this.found.value;
    const fresh = lines.filter((line) => !this.#keys.has(getLineKey(line))).slice(0, MOST_HITS - hits.length);
    if (!fresh.length) return;
    for (const line of fresh) this.#keys.add(getLineKey(line));
    this.found.value = { ...this.found.value, hits: [...hits, ...fresh] };
  }
}

/**
 * @param {string} text
 * @param {string} wanted lower case
 */
function isFound(text, wanted) {
  const plain = text.includes("\x1b") ? toPlain(text) : text;
  return plain.toLowerCase().includes(wanted);
}
