// The loaded part of a job's log: lines of all ranks, and what the server says between them.
import { signal } from "../html.js";
import { toPlain } from "./log_text.js";
import { TAIL_LINES } from "./polling.js";
import { now } from "./time.js";

/**
 * @typedef {object} Entry
 * @property {string} kind "line", or the kind of a mark: attempt, gap, waiting, trouble
 * @property {number} attempt
 * @property {string} job
 * @property {number} worker
 * @property {string} container
 * @property {string} time
 * @property {string} text
 * @property {number} same how many lines of this worker had the same time before
 * @property {string} [plain] lower case, for the search; made when it is needed
 */

/** @typedef {import("../api.js").LogLine} Line */

/** So many are kept; then the oldest are dropped, a few at a time. */
const MOST_LINES = 200_000;
const DROPPED_LINES = 20_000;

export class LogLines {
  /** @type {Entry[]} */
  entries = [];
  /** The number of the first entry: it grows when old ones are dropped, and shrinks when older ones are loaded. */
  start = 0;
  /** Whether the server may have older lines. */
  hasEarlier = signal(false);
  /** @type {import("../html.js").Signal<string>} */
  end = signal("");
  /** @type {import("../html.js").Signal<{status: number, detail: string, hint: string} | null>} */
  problem = signal(null);
  /** Increases with every change, at most once per frame. */
  version = signal(0);
  /** Increases when the lines are no longer the continuation of what was there. */
  generation = 0;
  isLoaded = signal(false);
  #isWaiting = false;
  /** How many of the lines were printed before we asked: as many as we asked for means that there are more. */
  #backlog = 0;
  #begun = now.peek();
  /** The latest one that has begun. */
  #attempt = -1;
  /** @type {Map<string, {time: string, same: number}>} the last line of each worker */
  #last = new Map();

  clear() {
    this.entries = [];
    this.start = 0;
    this.hasEarlier.value = false;
    this.#backlog = 0;
    this.#begun = now.peek();
    this.#attempt = -1;
    this.#last.clear();
    this.generation += 1;
    this.end.value = "";
    this.problem.value = null;
    this.#tell();
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  take(event, data) {
    if (event === "log") {
      this.#append(data.lines);
      this.#countBacklog(data.lines);
    }
    if (event === "mark") this.#mark(data);
    else if (event === "snapshot") this.#merge(data.lines);
    else if (event === "end") this.end.value = data.state;
    else if (event === "problem") this.problem.value = data;
    this.#drop();
    if (event !== "mark") this.isLoaded.value = true;
    this.#tell();
  }

  /**
   * @param {Line[]} lines
   * @param {boolean} [isTruncated] the server has older ones
   */
  replace(lines, isTruncated = false) {
    this.clear();
    this.#append(lines);
    this.hasEarlier.value = isTruncated;
    this.isLoaded.value = true;
    this.#tell();
  }

  /**
   * Puts those that are older than all we have before them.
   * @param {Line[]} lines an end of the log that is longer than what we have
   * @param {boolean} isTruncated
   */
  prepend(lines, isTruncated) {
    const first = this.entries.find((entry) => entry.kind === "line");
    const at = first ? lines.findIndex((line) => isSame(line, first)) : -1;
    if (at < 0) {
      this.replace(lines, isTruncated);
      return;
    }
    const later = this.entries;
    const kept = { attempt: this.#attempt, last: this.#last };
    this.entries = [];
    this.#attempt = -1;
    this.#last = new Map();
    this.#append(lines.slice(0, at));
    this.#attempt = kept.attempt;
    this.#last = kept.last;
    this.start -= this.entries.length;
    this.entries = this.entries.concat(later);
    this.hasEarlier.value = isTruncated;
    this.#tell();
  }

  /**
   * A mark may come twice after a reconnect.
   * @param {{kind: string, attempt: number, text: string}} mark
   */
  #mark({ kind, attempt, text }) {
    const last = this.entries.at(-1);
    if (last && last.kind === kind && last.attempt === attempt && last.text === text) return;
    if (kind === "attempt") this.#attempt = Math.max(this.#attempt, attempt);
    this.entries.push({ ...NOWHERE, kind, attempt, text });
  }

  /**
   * Answers have no marks, so the first line of a later attempt gets one.
   * @param {Line[]} lines
   */
  #append(lines) {
    for (const line of lines) {
      if (line.attempt > this.#attempt) {
        if (this.#attempt >= 0) this.entries.push({ ...NOWHERE, kind: "attempt", attempt: line.attempt });
        this.#attempt = line.attempt;
      }
      this.entries.push({ ...line, kind: "line", same: this.#countSame(line) });
    }
  }

  /**
   * Lines that are written together have the same time.
   * @param {Line} line
   */
  #countSame(line) {
    const key = [line.attempt, line.job, line.worker, line.container].join("~");
    const last = this.#last.get(key);
    const same = last?.time === line.time ? last.same + 1 : 0;
    this.#last.set(key, { time: line.time, same });
    return same;
  }

  /** @param {Line[]} lines */
  #countBacklog(lines) {
    if (this.#backlog >= TAIL_LINES) return;
    for (const line of lines) if (Date.parse(line.time) < this.#begun) this.#backlog += 1;
    if (this.#backlog >= TAIL_LINES) this.hasEarlier.value = true;
  }

  /**
   * An answer has the end of the log again: only what stands behind our last line is new.
   * @param {Line[]} lines
   */
  #merge(lines) {
    const last = this.entries.findLast((entry) => entry.kind === "line");
    const at = last ? lines.findLastIndex((line) => isSame(line, last)) : -1;
    if (at >= 0) this.#append(lines.slice(at + 1));
    else if (lines.length || !this.entries.length) this.replace(lines);
  }

  #drop() {
    if (this.entries.length <= MOST_LINES) return;
    this.entries.splice(0, DROPPED_LINES);
    this.start += DROPPED_LINES;
    this.hasEarlier.value = true;
  }

  #tell() {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    requestAnimationFrame(() => {
      this.#isWaiting = false;
      this.version.value += 1;
    });
  }
}

/** @type {Entry} */
const NOWHERE = { kind: "", attempt: -1, job: "", worker: -1, container: "", time: "", text: "", same: 0 };

/**
 * @param {Line} one
 * @param {Line} other
 */
function isSame(one, other) {
  const isPlace = one.attempt === other.attempt && one.job === other.job && one.worker === other.worker;
  return isPlace && one.time === other.time && one.text === other.text;
}

/**
 * What names a line in an address.
 * @param {Entry} line
 */
export function getLineKey(line) {
  return [line.attempt, line.job, line.worker, line.time, line.same].join("~");
}

/**
 * @param {Entry[]} entries
 * @param {string} key
 * @returns {number} the place of the line, or -1
 */
export function findLine(entries, key) {
  // Times differ most, and comparing them makes no texts.
  const time = key.split("~")[3];
  return entries.findIndex((entry) => entry.time === time && entry.kind === "line" && getLineKey(entry) === key);
}

/** @param {Entry} entry */
export function getSearchText(entry) {
  entry.plain ??= toPlain(entry.text).toLowerCase();
  return entry.plain;
}
