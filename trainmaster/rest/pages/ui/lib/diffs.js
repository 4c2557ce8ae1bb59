// Asks a worker what differs between two texts.
import { startWorker } from "./workers.js";

/** @typedef {import("./diff.js").DiffLine} DiffLine */

/** @type {Worker | null} */
let worker = null;
let last = 0;
/** @type {Map<number, (lines: DiffLine[]) => void>} */
const waiting = new Map();

/**
 * @param {string} before
 * @param {string} after
 * @returns {Promise<DiffLine[]>}
 */
export function askDiff(before, after) {
  if (!worker) {
    worker = startWorker("diff_worker.js");
    worker.addEventListener("message", (event) => {
      waiting.get(event.data.id)?.(event.data.lines);
      waiting.delete(event.data.id);
    });
  }
  last += 1;
  const id = last;
  worker.postMessage({ id, before, after });
  return new Promise((resolve) => waiting.set(id, resolve));
}
