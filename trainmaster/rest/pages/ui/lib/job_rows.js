// All jobs that the caller may see, as the stream sends them: kept by uid, searched and sorted here.
import { signal } from "../html.js";

/**
 * @typedef {object} JobRow
 * @property {string} namespace
 * @property {string} name
 * @property {string} kind
 * @property {string} uid
 * @property {string | null} user
 * @property {string} runtime
 * @property {string | null} framework
 * @property {string} state
 * @property {string | null} reason
 * @property {string | null} message
 * @property {boolean} deleting
 * @property {number | null} nodes
 * @property {string} created_at
 * @property {string | null} completed_at
 * @property {number | null} percent
 * @property {number | null} eta_seconds
 * @property {Record<string, string> | null} labels
 * @property {Record<string, string> | null} metrics
 * @property {number | null} restarts
 */

/** In the order of the stream, until it says another one. */
const COLUMNS = [
  ...["namespace", "name", "kind", "uid", "user", "runtime", "framework", "state", "reason", "message", "deleting"],
  ...["nodes", "created_at", "completed_at", "percent", "eta_seconds", "labels", "metrics", "restarts"],
];

/** @param {import("../api.js").JobSummary} job @returns {JobRow} */
export function toRow(job) {
  const { progress } = job;
  return {
    ...job,
    percent: progress?.percent ?? null,
    eta_seconds: progress?.eta_seconds ?? null,
    metrics: progress?.metrics ?? null,
    restarts: null,
  };
}

/**
 * @param {string[]} columns
 * @param {unknown[]} values
 * @returns {JobRow}
 */
function readRow(columns, values) {
  /** @type {Record<string, unknown>} */
  const row = {};
  for (let index = 0; index < columns.length; index += 1) row[columns[index] ?? ""] = values[index];
  return /** @type {JobRow} */ (/** @type {unknown} */ (row));
}

export class JobRows {
  /** @type {Map<string, JobRow>} */
  #rows = new Map();
  /** Those that have come since the last beginning; the others are forgotten when all have come. */
  /** @type {Set<string> | null} */
  #fresh = new Set();
  /** @type {string[]} */
  #columns = COLUMNS;
  #isWaiting = false;

  /** Increases with every change, at most once per frame. */
  version = signal(0);
  isComplete = signal(false);
  /** @type {import("../html.js").Signal<{status: number, detail: string, hint: string} | null>} */
  problem = signal(null);

  get size() {
    return this.#rows.size;
  }

  list() {
    return [...this.#rows.values()];
  }

  /** @param {string} uid */
  find(uid) {
    return this.#rows.get(uid);
  }

  /** Rows that are known stay on the screen until the new ones are complete. */
  begin() {
    this.#fresh = new Set();
    this.problem.value = null;
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  take(event, data) {
    if (event === "rows") {
      this.#columns = data.columns ?? this.#columns;
      for (const values of data.rows) this.#put(readRow(this.#columns, values));
    } else if (event === "row") {
      this.#put(readRow(data.columns ?? this.#columns, data.row));
    } else if (event === "gone") {
      this.#rows.delete(data.uid);
    } else if (event === "synced") {
      this.#complete();
    } else if (event === "reset") {
      this.begin();
    } else if (event === "snapshot") {
      this.begin();
      for (const job of data.jobs) this.#put(toRow(job));
      this.#complete();
    } else if (event === "problem") {
      this.problem.value = data;
      this.isComplete.value = true;
    }
    this.#tell();
  }

  /** @param {JobRow} row */
  #put(row) {
    this.#rows.set(row.uid, row);
    this.#fresh?.add(row.uid);
  }

  #complete() {
    if (this.#fresh) {
      for (const uid of this.#rows.keys()) if (!this.#fresh.has(uid)) this.#rows.delete(uid);
    }
    this.#fresh = null;
    this.isComplete.value = true;
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

/** @type {WeakMap<JobRow, string>} */
const haystacks = new WeakMap();

/** @param {JobRow} row */
function getHaystack(row) {
  let text = haystacks.get(row);
  if (text === undefined) {
    const labels = Object.entries(row.labels ?? {}).map(([name, value]) => `${name}=${value}`);
    const parts = [row.name, row.namespace, row.user, row.runtime, row.framework, row.kind, row.state, row.reason];
    text = [...parts, row.message, ...labels].filter(Boolean).join("\n").toLowerCase();
    haystacks.set(row, text);
  }
  return text;
}

/**
 * @typedef {object} JobFilter
 * @property {string} q words that all have to be there
 * @property {string[]} states
 * @property {string} namespace
 * @property {string} user
 * @property {string} runtime
 * @property {string[]} labels KEY or KEY=VALUE
 * @property {string} since how old they may be: 24h, 7d; "": any age
 */

/**
 * @param {JobRow[]} rows
 * @param {JobFilter} filter
 * @param {number} time now, in milliseconds
 */
export function filterRows(rows, filter, time) {
  const oldest = filter.since ? time - parseSpan(filter.since) : 0;
  const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
  const states = new Set(filter.states);
  return rows.filter(
    (row) =>
      (!states.size || states.has(getShownState(row))) &&
      (!filter.namespace || row.namespace === filter.namespace) &&
      (!filter.user || (row.user ?? "") === filter.user) &&
      (!filter.runtime || row.runtime === filter.runtime) &&
      (!oldest || Date.parse(row.created_at) >= oldest) &&
      filter.labels.every((label) => hasLabel(row, label)) &&
      words.every((word) => getHaystack(row).includes(word)),
  );
}

/** @param {string} text 24h, 7d */
function parseSpan(text) {
  const unit = text.endsWith("d") ? 86_400_000 : 3_600_000;
  return (Number.parseInt(text, 10) || 0) * unit;
}

/**
 * @param {JobRow} row
 * @param {string} label
 */
function hasLabel(row, label) {
  const cut = label.indexOf("=");
  const name = cut < 0 ? label : label.slice(0, cut);
  const labels = row.labels ?? {};
  return Object.hasOwn(labels, name) && (cut < 0 || labels[name] === label.slice(cut + 1));
}

/** @param {{state: string, deleting?: boolean}} row */
export function getShownState(row) {
  return row.deleting ? "Deleting" : row.state;
}

/** @type {Record<string, (row: JobRow) => string | number>} */
export const SORTS = {
  name: (row) => row.name,
  namespace: (row) => row.namespace,
  state: (row) => STATES.indexOf(getShownState(row)),
  user: (row) => row.user ?? "",
  runtime: (row) => row.runtime,
  kind: (row) => row.kind,
  nodes: (row) => row.nodes ?? 0,
  restarts: (row) => row.restarts ?? 0,
  progress: (row) => row.percent ?? -1,
  created: (row) => row.created_at,
  ended: (row) => row.completed_at ?? "",
  duration: (row) => measure(row),
};

/** The order in which they are counted and sorted. */
/** How far a job came is no result: these stand beside its progress. */
export const COUNTERS = ["current_step", "total_steps"];
export const STATES = ["Running", "Pending", "Suspended", "Failed", "Complete", "Deleting"];

/** @param {JobRow} row */
function measure(row) {
  const begin = Date.parse(row.created_at);
  return (row.completed_at ? Date.parse(row.completed_at) : Number.MAX_SAFE_INTEGER / 2) - begin;
}

/**
 * @param {JobRow[]} rows
 * @param {string} order a name of SORTS; with "-" before it the largest first
 */
export function sortRows(rows, order) {
  const isDown = order.startsWith("-");
  const name = isDown ? order.slice(1) : order;
  const key = Object.hasOwn(SORTS, name) ? SORTS[name] : SORTS.created;
  const keyed = rows.map((row) => ({ row, value: key ? key(row) : 0 }));
  const sign = isDown ? -1 : 1;
  keyed.sort((one, other) => {
    if (one.value !== other.value) return one.value < other.value ? -sign : sign;
    if (one.row.created_at !== other.row.created_at) return one.row.created_at < other.row.created_at ? 1 : -1;
    return one.row.uid < other.row.uid ? -1 : 1;
  });
  return keyed.map(({ row }) => row);
}

/** @param {JobRow[]} rows */
export function countStates(rows) {
  /** @type {Record<string, number>} */
  const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const row of rows) {
    const state = getShownState(row);
    counts[state] = (counts[state] ?? 0) + 1;
  }
  return counts;
}
