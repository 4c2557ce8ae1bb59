// The log of a job: its end, which grows, and the part of it that somebody reads, which may be somewhere else.
//
// The end comes from the stream. Everything else comes in windows (docs/rest.md, "Reading logs"), so that a million
// lines are opened as quickly as ten. Who leaves the end keeps what is shown, whatever comes behind it.
import { signal } from "../html.js";
import { get } from "./api.js";
import { findLine, getLineKey, getPlaceAfter, LogRun } from "./log_run.js";

/** @typedef {import("./log_run.js").Entry} Entry */
/** @typedef {import("./log_run.js").Line} Line */
/** @typedef {{path: string, query: import("./api.js").Query}} Source where the server has the lines: the path of its logs */

/** So many are kept; then some are dropped at the side that is not read. */
const MOST_LINES = 50_000;
const DROPPED_LINES = 10_000;
/** So many are loaded at a time. */
const WINDOW = 500;
/** While the end is not shown, what comes is only counted. */
const SLOW_MS = 250;

export class LogLines {
  #live = new LogRun();
  /** @type {LogRun | null} what is read, if that is not the end */
  #far = null;
  /** Whether the entries of `far` have the numbers that those of `live` have. */
  #isCopy = false;
  /** The number after the last entry when the end was left. */
  #left = 0;
  #hasFrame = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #isLoading = false;
  #jumps = 0;
  /** Nothing comes live: the log of a deleted job, or of an earlier attempt. */
  #isStill = false;
  /** @type {import("../html.js").Signal<string>} */
  end = signal("");
  /** @type {import("../html.js").Signal<{status: number, detail: string, hint: string} | null>} */
  problem = signal(null);
  /** Increases with every change, at most once per frame. */
  version = signal(0);
  /** Increases when the lines are no longer the continuation of what was there. */
  generation = 0;
  isLoaded = signal(false);
  /** @type {Source} */
  source = { path: "", query: {} };
  /** @type {(lines: Line[]) => void} is told what comes live */
  onLines = () => {};

  get #run() {
    return this.#far ?? this.#live;
  }

  get entries() {
    return this.#run.entries;
  }

  get start() {
    return this.#run.start;
  }

  /** Whether what is shown is not the growing end. */
  get isFar() {
    return this.#far !== null;
  }

  /** How many entries have come since the end was left. */
  get missed() {
    return this.#far ? Math.max(0, this.#live.end - this.#left) : 0;
  }

  /** @param {number} index of a shown entry @returns {number} about what share of all bytes stands before it */
  getShare(index) {
    const { begin, finish, entries } = this.#run;
    return begin + ((finish - begin) * index) / Math.max(1, entries.length);
  }

  /** Other lines are wanted. */
  clear() {
    this.#far = null;
    this.#isStill = false;
    this.isLoaded.value = false;
    this.restart();
  }

  /** The end comes again from its beginning; what is read elsewhere stays. */
  restart() {
    this.#replaceLive(new LogRun());
    this.end.value = "";
    this.problem.value = null;
  }

  /** @param {LogRun} run */
  #replaceLive(run) {
    this.#live = run;
    this.#isCopy = false;
    if (!this.#far) this.generation += 1;
    this.#tell();
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  take(event, data) {
    if (event === "log") this.#append(data.lines);
    else if (event === "mark") this.#live.mark(data);
    else if (event === "snapshot") this.#merge(data.lines);
    else if (event === "end") this.end.value = data.state;
    else if (event === "problem") this.problem.value = data;
    if (event !== "mark") this.isLoaded.value = true;
    this.#tell(this.#far ? SLOW_MS : 0);
  }

  /** @param {Line[]} lines */
  #append(lines) {
    this.#live.append(lines);
    if (this.#live.entries.length > MOST_LINES) this.#live.dropFirst(DROPPED_LINES);
    this.onLines(lines);
  }

  /**
   * An answer has the end of the log again: only what stands behind our last lines is new.
   * @param {Line[]} lines
   */
  #merge(lines) {
    const fresh = lines.filter((line) => !this.#live.hasReached(line));
    if (fresh.length === lines.length && this.#live.entries.length) {
      // Something between is missing.
      this.#replaceLive(new LogRun());
    }
    this.#append(fresh);
  }

  /**
   * The end of a log that does not grow.
   * @param {AbortSignal} aborted
   */
  async load(aborted) {
    const part = await this.#ask("end", WINDOW, 0, aborted);
    this.#isStill = true;
    this.isLoaded.value = true;
    this.#replaceLive(buildRun(part));
  }

  /** The lines cannot be read. */
  giveUp() {
    this.clear();
    this.isLoaded.value = true;
  }

  /** Somebody reads: nothing moves from now on. */
  leave() {
    if (this.#far) return;
    this.#far = this.#live.copy();
    this.#isCopy = true;
    this.#left = this.#live.end;
    this.#tell();
  }

  goToEnd() {
    if (!this.#far) return;
    if (!this.#isCopy || this.#live.start > this.#far.end) this.generation += 1;
    this.#far = null;
    this.#tell();
  }

  loadBefore() {
    const run = this.#run;
    const firsts = run.listFirsts().sort((one, other) => (one.time < other.time ? 1 : -1));
    const [latest] = firsts;
    if (run.isFirst || !latest) return Promise.resolve();
    return this.#work(async () => {
      const part = await this.#ask(getLineKey(latest), WINDOW, 0);
      if (run !== this.#run) return;
      run.prepend(run.selectEarlier(part.lines));
      run.isFirst = part.is_first;
      run.begin = part.begin_share;
      if (run.entries.length <= MOST_LINES) return;
      this.leave();
      this.#far?.dropLast(MOST_LINES - DROPPED_LINES);
    });
  }

  loadAfter() {
    const far = this.#far;
    if (!far || this.#joinCopy(far)) return Promise.resolve();
    const last = far.entries.findLast((entry) => entry.kind === "line");
    return this.#work(async () => {
      const part = await this.#ask(last ? getPlaceAfter(last) : "start", 0, WINDOW);
      if (far !== this.#far) return;
      this.#isCopy = false;
      far.append(part.lines.filter((line) => !far.hasReached(line)));
      far.finish = part.end_share;
      if (!this.#join(far, part.is_last) && far.entries.length > MOST_LINES) far.dropFirst(DROPPED_LINES);
    });
  }

  /**
   * Shows another part.
   * @param {string} at the key of a line, "start", a time, or a share such as "50%"
   * @returns {Promise<number>} the index of what is there, or -1
   */
  async jump(at) {
    const known = findLine(this.entries, at);
    if (known >= 0) {
      this.leave();
      return known;
    }
    let index = -1;
    this.#jumps += 1;
    const turn = this.#jumps;
    // Whatever is loading, this is wanted now.
    this.#isLoading = false;
    await this.#work(async () => {
      const part = await this.#ask(at, WINDOW, WINDOW);
      if (turn !== this.#jumps) return;
      const far = buildRun(part);
      const place = part.lines[part.before] ?? part.lines.at(-1);
      if (!this.#far) this.#left = this.#live.end;
      this.#far = far;
      this.#isCopy = false;
      this.generation += 1;
      this.#join(far, part.is_last);
      index = place ? findLine(this.entries, getLineKey(place)) : -1;
    });
    return index;
  }

  /**
   * What is shown was the end, and continues in memory.
   * @param {LogRun} far
   */
  #joinCopy(far) {
    const live = this.#live;
    if (!this.#isCopy || live.start > far.end) return false;
    live.entries = far.entries.concat(live.entries.slice(far.end - live.start));
    live.start = far.start;
    live.isFirst = far.isFirst;
    live.begin = far.begin;
    this.#far = null;
    this.#tell();
    return true;
  }

  /**
   * What is shown may have reached the end that is in memory: then they are one.
   * @param {LogRun} far
   * @param {boolean} isLast nothing stands behind it
   */
  #join(far, isLast) {
    const live = this.#live;
    const firsts = live.listFirsts();
    if (firsts.length ? !firsts.every((first) => far.hasReached(first)) : !(isLast && this.#isStill)) return false;
    if (firsts.length) {
      live.entries = takeUntilLast(far.entries, new Set(live.selectEarlier(far.entries))).concat(live.entries);
      live.start = far.start;
      live.isFirst = far.isFirst;
      live.begin = far.begin;
    } else {
      this.#live = far;
    }
    this.#far = null;
    return true;
  }

  /**
   * One request at a time.
   * @param {() => Promise<void>} load
   */
  async #work(load) {
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      await load();
    } finally {
      this.#isLoading = false;
      this.#tell();
    }
  }

  /**
   * @param {string} at
   * @param {number} before
   * @param {number} after
   * @param {AbortSignal} [aborted]
   * @returns {Promise<import("../api.js").LogWindow>}
   */
  #ask(at, before, after, aborted) {
    return get(`${this.source.path}/window`, { ...this.source.query, at, before, after }, aborted);
  }

  /** @param {number} [milliseconds] 0: with the next frame */
  #tell(milliseconds = 0) {
    if (milliseconds) {
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.version.value += 1;
      }, milliseconds);
    } else if (!this.#hasFrame) {
      this.#hasFrame = true;
      requestAnimationFrame(() => {
        this.#hasFrame = false;
        this.version.value += 1;
      });
    }
  }
}

/** @param {import("../api.js").LogWindow} part */
function buildRun(part) {
  const run = new LogRun();
  run.append(part.lines);
  run.isFirst = part.is_first;
  run.begin = part.begin_share;
  run.finish = part.end_share;
  return run;
}

/**
 * The wanted lines, with the marks between them.
 * @param {Entry[]} entries
 * @param {Set<Entry>} wanted
 */
function takeUntilLast(entries, wanted) {
  const end = entries.findLastIndex((entry) => wanted.has(entry)) + 1;
  return entries.slice(0, end).filter((entry) => entry.kind !== "line" || wanted.has(entry));
}
