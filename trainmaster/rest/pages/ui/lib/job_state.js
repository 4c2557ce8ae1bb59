// One job as its page needs it: live from the stream, and from its record when it is gone. Both have the same form.
import { signal } from "../html.js";
import { ApiProblem, get } from "./api.js";

/** @typedef {import("../api.js").JobDetail} JobDetail */
/** @typedef {import("../api.js").RecordDetail} RecordDetail */
/** @typedef {{time: string, type?: string, reason: string, message: string, about: string, count: number}} JobEvent */

export class JobState {
  /** @type {import("../html.js").Signal<JobDetail | null>} */
  live = signal(null);
  /** @type {import("../html.js").Signal<RecordDetail | null>} */
  record = signal(null);
  /** @type {import("../html.js").Signal<JobEvent[]>} */
  events = signal([]);
  /** @type {import("../html.js").Signal<{status: number, message?: string, detail?: string, hint?: string} | null>} */
  problem = signal(null);
  /** Whether this page has seen the job itself. */
  wasLive = false;
  /** Whether the job itself is gone, or another one has its name. */
  isGone = signal(false);
  /** The uid whose record has been asked for. */
  #wanted = "-";

  /**
   * @param {string} namespace
   * @param {string} uid "": whichever has the name
   */
  constructor(namespace, uid) {
    this.namespace = namespace;
    this.uid = uid;
  }

  begin() {
    this.events.value = [];
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  take(event, data) {
    if (event === "detail") this.#takeDetail(data.job);
    else if (event === "event") this.#takeEvent(data.event);
    else if (event === "gone") this.#leave();
    else if (event === "problem" && data.status === 404) this.#leave();
    else if (event === "problem") this.problem.value = data;
  }

  /** @param {JobDetail} job */
  #takeDetail(job) {
    if (this.uid && job.uid !== this.uid) {
      this.#leave();
      return;
    }
    this.uid = job.uid;
    this.live.value = job;
    this.wasLive = true;
    this.problem.value = null;
  }

  /** @param {JobEvent} event */
  #takeEvent(event) {
    // An event that happens again comes again, with its new count.
    const key = identify(event);
    const others = this.events.value.filter((one) => identify(one) !== key);
    this.events.value = [...others, event];
  }

  #leave() {
    this.isGone.value = true;
    if (this.#wanted === this.uid) return;
    this.#wanted = this.uid;
    this.#readRecord();
  }

  /** @param {number} [tries] a record says that its job is gone a moment after it is */
  async #readRecord(tries = 4) {
    const again = () => setTimeout(() => this.#readRecord(tries - 1), 1000);
    try {
      if (!this.uid) throw new ApiProblem({ status: 404 });
      const record = await get(`history/${encodeURIComponent(this.uid)}`, { namespace: this.namespace });
      this.record.value = record;
      this.live.value = null;
      this.events.value = record.events;
      this.problem.value = null;
      if (!record.deleted_at && tries > 0) again();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      if (this.live.value && tries > 0) {
        again();
        return;
      }
      this.live.value = null;
      this.problem.value = error;
    }
  }
}

/** @param {JobEvent} event */
function identify(event) {
  return [event.reason, event.about, event.message].join("\n");
}

/** @param {{job: string}[]} workers @returns {boolean} whether they are of several kinds, so that ranks alone do not name them */
export const hasJobs = (workers) => new Set(workers.map((one) => one.job)).size > 1;

/**
 * @param {JobDetail | null} live
 * @param {RecordDetail | null} record
 */
export function countAttempts(live, record) {
  if (live) return live.attempt + 1;
  const known = [...(record?.logs ?? []), ...(record?.workers ?? [])].map((one) => one.attempt);
  return 1 + Math.max(0, record?.verdict?.attempt ?? 0, ...known);
}
