// Lines of a log that follow one another, and what the server says between them.

/**
 * @typedef {object} Entry
 * @property {string} kind "line", or the kind of a mark: attempt, gap, waiting, trouble
 * @property {number} attempt
 * @property {string} job
 * @property {number} worker
 * @property {string} container
 * @property {string} time
 * @property {string} text
 * @property {number} same how many lines of this worker have the same time and stand before it
 */

/** @typedef {Omit<import("../api.js").AddressedLine, "same"> & {same?: number}} Line */

/** @type {Entry} */
const NOWHERE = { kind: "", attempt: -1, job: "", worker: -1, container: "", time: "", text: "", same: 0 };

/** So many entries at its beginning may be in another order than in an answer. */
const RAGGED = 100;

export class LogRun {
  /** @type {Entry[]} */
  entries = [];
  /** The number of the first entry: it grows when the first ones are dropped, and shrinks when earlier ones are added. */
  start = 0;
  /** Nothing stands before it. */
  isFirst = false;
  /** The share of all bytes before it and up to its end. */
  begin = 0;
  finish = 1;
  /** Its first lines were dropped, so that workers begin at different times. */
  isRagged = false;
  /** The latest attempt that has begun. */
  #attempt = -1;
  /** @type {Map<string, Line>} the last line of each worker */
  #last = new Map();

  /** The number after the last entry. */
  get end() {
    return this.start + this.entries.length;
  }

  /** @returns {LogRun} the same entries; it changes for itself */
  copy() {
    const other = new LogRun();
    other.entries = this.entries.slice();
    other.start = this.start;
    other.isFirst = this.isFirst;
    other.isRagged = this.isRagged;
    other.begin = this.begin;
    other.finish = this.finish;
    other.#attempt = this.#attempt;
    other.#last = new Map(this.#last);
    return other;
  }

  /**
   * Answers have no marks, so the first line of a later attempt gets one.
   * @param {Line[]} lines
   */
  append(lines) {
    for (const line of lines) {
      if (line.attempt > this.#attempt) {
        if (this.#attempt >= 0) this.entries.push({ ...NOWHERE, kind: "attempt", attempt: line.attempt });
        this.#attempt = line.attempt;
      }
      const key = getSeat(line);
      this.entries.push({ ...line, kind: "line", same: line.same ?? countSame(line, this.#last.get(key)) });
      const last = this.entries.at(-1);
      if (last) this.#last.set(key, last);
    }
  }

  /** @param {Line[]} lines what stands before all that there is */
  prepend(lines) {
    const earlier = new LogRun();
    earlier.append(lines);
    const first = this.entries.find((entry) => entry.kind === "line");
    // What begins with a later attempt has no mark for it yet.
    if (first && earlier.#attempt >= 0 && first.attempt > earlier.#attempt && this.entries[0]?.kind === "line") {
      earlier.entries.push({ ...NOWHERE, kind: "attempt", attempt: first.attempt });
    }
    this.start -= earlier.entries.length;
    this.isRagged = false;
    this.entries = earlier.entries.concat(this.entries);
  }

  /**
   * A mark may come twice after a reconnect.
   * @param {{kind: string, attempt: number, text: string}} mark
   */
  mark({ kind, attempt, text }) {
    const last = this.entries.at(-1);
    if (last && last.kind === kind && last.attempt === attempt && last.text === text) return;
    if (kind === "attempt") this.#attempt = Math.max(this.#attempt, attempt);
    this.entries.push({ ...NOWHERE, kind, attempt, text });
  }

  /**
   * Whether the line is one of these, or older than those of its worker.
   * @param {Line} line
   */
  hasReached(line) {
    const last = this.#last.get(getSeat(line));
    return last !== undefined && compare(line, last) <= 0;
  }

  /** @param {number} count */
  dropFirst(count) {
    this.entries.splice(0, count);
    this.start += count;
    this.isFirst = false;
    this.isRagged = true;
  }

  /** @param {number} most so many stay */
  dropLast(most) {
    this.entries.length = Math.min(this.entries.length, most);
    this.#last = new Map();
    for (const entry of this.entries) if (entry.kind === "line") this.#last.set(getSeat(entry), entry);
  }

  /** @returns {Entry[]} the first line of each worker that prints at its beginning */
  listFirsts() {
    /** @type {Map<string, Entry>} */
    const firsts = new Map();
    for (const entry of this.entries.slice(0, this.isRagged ? RAGGED : undefined)) {
      if (entry.kind !== "line") continue;
      if (!firsts.has(getSeat(entry))) firsts.set(getSeat(entry), entry);
      if (!this.isRagged) break;
    }
    return [...firsts.values()];
  }

  /**
   * Of entries that end where this begins, or a little later, those that are not here: workers print side by side, so
   * their lines come in another order live than in an answer.
   * @template {Line & {kind?: string}} L
   * @param {L[]} lines
   * @returns {L[]}
   */
  selectEarlier(lines) {
    /** @type {Map<string, Entry>} */
    const firsts = new Map();
    for (const entry of this.entries) {
      if (entry.kind === "line" && !firsts.has(getSeat(entry))) firsts.set(getSeat(entry), entry);
    }
    return lines.filter((line) => {
      if (line.kind !== undefined && line.kind !== "line") return false;
      const first = firsts.get(getSeat(line));
      return !first || compare(line, first) < 0;
    });
  }
}

/** @param {Line} line the process that printed it */
function getSeat(line) {
  return `${line.attempt}~${line.job}~${line.worker}~${line.container}`;
}

/**
 * @param {Line} line
 * @param {Line | undefined} last
 */
function countSame(line, last) {
  return last?.time === line.time ? (last.same ?? 0) + 1 : 0;
}

/**
 * @param {Line} line
 * @param {Line} other of the same process
 */
function compare(line, other) {
  if (line.time !== other.time) return line.time < other.time ? -1 : 1;
  return (line.same ?? 0) - (other.same ?? 0);
}

/**
 * What names a line in an address, for people and for the server.
 * @param {Line} line
 */
export function getLineKey(line) {
  return [line.attempt, line.job, line.worker, line.time, line.same ?? 0].join("~");
}

/** @param {Line} line the place behind it */
export function getPlaceAfter(line) {
  return getLineKey({ ...line, same: (line.same ?? 0) + 1 });
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
