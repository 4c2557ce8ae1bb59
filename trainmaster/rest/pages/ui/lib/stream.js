// The live connection of this tab: one stream for all topics of the shown page (docs/rest.md, "Streams").
//
// A browser has six connections to a server over HTTP/1.1, so at most four of its tabs have a stream, and the others ask
// every 5 seconds. A hidden tab closes its stream after 10 seconds. A stream that is silent for 40 seconds, although the
// server sends a comment every 15, is held back by a proxy: then this tab asks, too.
import { signal, useEffect, useRef } from "../html.js";
import { ApiProblem, open } from "./api.js";
import { pollTopic } from "./polling.js";
import { EventReader } from "./sse.js";

const SLOTS = 4;
const POLL_MS = 5_000;
const HIDDEN_MS = 10_000;
const SILENT_MS = 40_000;
const BUFFERED_MS = 120_000;
/** So long events are taken before something is drawn. */
const TURN_MS = 10;
/** How long to wait before each new try; the last one is for all further tries. */
const PAUSES_MS = [250, 500, 1_000, 1_000, 2_000, 2_000, 2_000, 5_000];

/**
 * live; connecting: for the first time; lost: the server does not answer; polling: too many tabs have streams;
 * buffered: a proxy holds the stream back; paused: the tab is hidden; off: the page needs no stream
 * @typedef {"off" | "connecting" | "live" | "lost" | "polling" | "buffered" | "paused"} Mode
 */

/** @type {import("../html.js").Signal<Mode>} */
export const mode = signal("off");

/**
 * @typedef {object} Listener
 * @property {() => void} onBegin everything comes from the beginning: forget what was received
 * @property {(event: string, data: any) => void} onEvent `data.topic` says what it is about
 */

/** @typedef {"hidden" | "silent" | "stopped"} Reason why we have closed a stream ourselves */

class Connection {
  /** @type {string} */
  #id = "";
  #failures = 0;
  #stop = new AbortController();
  #bufferedUntil = 0;
  #hasNoStreams = false;

  /**
   * @param {string[]} topics
   * @param {import("./api.js").Query} query
   * @param {Listener} listener
   */
  constructor(topics, query, listener) {
    this.topics = topics;
    this.query = query;
    this.listener = listener;
  }

  stop() {
    this.#stop.abort("stopped");
  }

  /** Nothing more will come, or may. */
  #finish() {
    this.stop();
    mode.value = "off";
  }

  get #isStopped() {
    return this.#stop.signal.aborted;
  }

  async run() {
    mode.value = "connecting";
    while (!this.#isStopped) {
      if (document.hidden) {
        mode.value = "paused";
        await waitUntilVisible(this.#stop.signal);
        continue;
      }
      const isAsking = this.#hasNoStreams || performance.now() < this.#bufferedUntil;
      const release = isAsking ? null : await takeSlot();
      try {
        if (release) await this.#follow();
        else await this.#ask(isAsking && !this.#hasNoStreams ? "buffered" : "polling");
      } catch (error) {
        await this.#handle(error);
      } finally {
        release?.();
      }
    }
  }

  /** Follows one stream until it ends, and throws why. */
  async #follow() {
    const controller = new AbortController();
    /** @param {Reason} reason */
    const close = (reason) => controller.abort(reason);
    const unwatch = watchHidden(() => close("hidden"));
    const silence = new Deadline(SILENT_MS, () => close("silent"));
    const stopped = () => close("stopped");
    this.#stop.signal.addEventListener("abort", stopped);
    if (this.#isStopped) stopped();
    try {
      /** @type {Record<string, string>} */
      const headers = this.#id ? { "last-event-id": this.#id } : {};
      const options = { query: { ...this.query, topic: this.topics }, headers, signal: controller.signal };
      const response = await open("GET", "stream", options);
      if (response.status === 204 || !response.body) return this.#finish();
      if (!this.#id) this.listener.onBegin();
      const decoder = new TextDecoderStream();
      await this.#read(response.body.pipeThrough(decoder), silence);
    } catch (error) {
      if (controller.signal.aborted) this.#note(controller.signal.reason);
      else throw error;
    } finally {
      this.#stop.signal.removeEventListener("abort", stopped);
      silence.cancel();
      unwatch();
      controller.abort("stopped");
    }
  }

  /**
   * @param {ReadableStream<string>} body
   * @param {Deadline} silence
   */
  async #read(body, silence) {
    const reader = body.getReader();
    const events = new EventReader();
    let began = performance.now();
    for (;;) {
      if (performance.now() - began > TURN_MS && !document.hidden) {
        // All that has come already would be read in one go, and the page would not answer meanwhile.
        await new Promise((go) => setTimeout(go));
        began = performance.now();
      }
      const asked = performance.now();
      const { done, value } = await reader.read();
      if (performance.now() - asked > 1) began = performance.now(); // it was not there yet
      if (done || this.#isStopped) break;
      silence.restart();
      this.#failures = 0;
      mode.value = "live";
      for (const event of events.push(value)) {
        this.listener.onEvent(event.event, JSON.parse(event.data));
        if (event.id) this.#id = event.id;
      }
    }
    if (!this.#isStopped) throw new ApiProblem({ status: 0, type: "ended" });
  }

  /** @param {Reason} reason */
  #note(reason) {
    if (reason !== "silent") return;
    this.#bufferedUntil = performance.now() + BUFFERED_MS;
    this.#id = "";
  }

  /** @param {Mode} shown */
  async #ask(shown) {
    for (const topic of this.topics) {
      for (const { event, data } of await pollTopic(topic, this.query, this.#stop.signal)) {
        if (!this.#isStopped) this.listener.onEvent(event, { ...data, topic });
      }
    }
    this.#failures = 0;
    if (this.#isStopped) return;
    mode.value = shown;
    await sleep(POLL_MS, this.#stop.signal);
  }

  /** @param {unknown} error */
  async #handle(error) {
    if (this.#isStopped) return;
    if (!(error instanceof ApiProblem)) {
      // A connection that breaks in the middle of a body.
      if (!(error instanceof TypeError) && !(error instanceof DOMException)) throw error;
    } else if (error.status === 401) {
      return this.#finish();
    } else if (error.status === 404 || error.status === 405) {
      this.#hasNoStreams = true; // a server that is older than this page
      return;
    } else if ((error.status === 410 || error.status === 422) && this.#id) {
      this.#id = "";
    } else if (error.status === 403 || error.status === 422) {
      for (const topic of this.topics) this.listener.onEvent("problem", { topic, ...describe(error) });
      return this.#finish();
    }
    this.#failures += 1;
    if (this.#failures > 1) mode.value = "lost";
    const pause = PAUSES_MS[Math.min(this.#failures, PAUSES_MS.length) - 1] ?? POLL_MS;
    const wanted = error instanceof ApiProblem && error.retryAfter ? error.retryAfter * 1000 : 0;
    // Tabs that lost the same server do not come back in the same moment.
    await sleep(Math.max(wanted, pause * (0.8 + Math.random() * 0.4)), this.#stop.signal);
  }
}

/** @param {ApiProblem} problem */
function describe(problem) {
  return { status: problem.status, detail: problem.message, hint: problem.hint };
}

class Deadline {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {number} milliseconds
   * @param {() => void} onPassed
   */
  constructor(milliseconds, onPassed) {
    this.milliseconds = milliseconds;
    this.onPassed = onPassed;
    this.restart();
  }

  restart() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.onPassed, this.milliseconds);
  }

  cancel() {
    clearTimeout(this.#timer);
  }
}

/**
 * One of the browser's places for streams, or null if all are taken; the result gives it back. Without locks (an old
 * browser) every tab has its stream.
 * @returns {Promise<(() => void) | null>}
 */
async function takeSlot() {
  if (!navigator.locks) return () => {};
  for (let number = 0; number < SLOTS; number += 1) {
    const release = await tryLock(`trainmaster.stream.${new URL("..", document.baseURI).pathname}${number}`);
    if (release) return release;
  }
  return null;
}

/**
 * @param {string} name
 * @returns {Promise<(() => void) | null>}
 */
function tryLock(name) {
  return new Promise((found) => {
    /** @param {Lock | null} lock */
    const hold = (lock) => {
      if (!lock) {
        found(null);
        return undefined;
      }
      return new Promise((/** @type {(value?: undefined) => void} */ release) => found(() => release()));
    };
    navigator.locks.request(name, { ifAvailable: true }, hold).catch(() => found(null));
  });
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal ends it early
 * @returns {Promise<void>}
 */
function sleep(milliseconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
    document.addEventListener("visibilitychange", end);
    window.addEventListener("online", end);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      document.removeEventListener("visibilitychange", end);
      window.removeEventListener("online", end);
      done();
    }
  });
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
async function waitUntilVisible(signal) {
  while (document.hidden && !signal.aborted) await sleep(2 ** 30, signal);
}

/**
 * Calls it when the tab has been hidden for a while.
 * @param {() => void} onHidden
 */
function watchHidden(onHidden) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(onHidden, HIDDEN_MS);
  };
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

/**
 * Follows these topics while the component is shown. Another set of topics is another stream, from the beginning.
 * @param {string[]} topics none: no stream
 * @param {import("./api.js").Query} query
 * @param {Listener} listener may be another one in every call
 */
export function useStream(topics, query, listener) {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    if (!topics.length) return undefined;
    const connection = new Connection(topics, query, {
      onBegin: () => latest.current.onBegin(),
      onEvent: (event, data) => latest.current.onEvent(event, data),
    });
    connection.run();
    return () => {
      connection.stop();
      mode.value = "off";
    };
  }, [JSON.stringify([topics, query])]);
}
