// The nodes and the queue, live: what the machine has, who has it, and what waits for it.
import { useState } from "../html.js";
import { buildJobAddress } from "./job_address.js";
import { findOwnNamespace, session } from "./session.js";
import { useStream } from "./stream.js";

/** @typedef {import("../api.js").NodeDetail} NodeDetail */
/** @typedef {import("../api.js").NodeJob} NodeJob */
/** @typedef {import("../api.js").Gpu} Gpu */
/** @typedef {import("../api.js").QueuedJob} QueuedJob */

/**
 * @typedef {object} Machine
 * @property {NodeDetail[] | null} nodes null if the caller may not list them
 * @property {import("../api.js").Queue} queue
 */

/**
 * @typedef {object} Followed
 * @property {Machine | null} machine null until it has come
 * @property {{status: number, detail: string, hint: string} | null} problem
 */

/**
 * @param {string} namespace of the jobs in the queue; "": all that the caller may read
 * @returns {Followed}
 */
export function useMachine(namespace) {
  const [state, setState] = useState(/** @type {Followed} */ ({ machine: null, problem: null }));
  useStream(["machine"], namespace ? { namespace } : {}, {
    onBegin: () => {},
    onEvent: (event, data) => setState((before) => takeMachine(before, event, data)),
  });
  return state;
}

/**
 * @param {Followed} before
 * @param {string} event
 * @param {any} data
 * @returns {Followed}
 */
export function takeMachine(before, event, data) {
  if (event === "machine") return { machine: { nodes: data.nodes, queue: data.queue }, problem: null };
  return event === "problem" ? { ...before, problem: data } : before;
}

/** The namespace whose queue somebody sees first; "" is all, which on a cluster few may read. */
export function findQueueNamespace() {
  const { me } = session.value;
  return me?.administrator || me?.tenant ? "" : findOwnNamespace();
}

/**
 * @typedef {object} Total
 * @property {string} name of the resource
 * @property {number} offered
 * @property {number | null} taken null if the caller may not know
 */

/** Shown where a summary has room for a few; a node's page has all. */
const MAIN = /(^cpu$|^memory$|\/gpu$)/;

/**
 * Of all nodes together.
 * @param {NodeDetail[]} nodes
 * @returns {Total[]}
 */
export function sumResources(nodes) {
  /** @type {Map<string, Total>} */
  const totals = new Map();
  for (const node of nodes) {
    for (const { name, allocatable, taken } of node.resources) {
      if (!MAIN.test(name) || !allocatable) continue;
      const total = totals.get(name) ?? { name, offered: 0, taken: 0 };
      total.offered += allocatable;
      total.taken = taken === null || total.taken === null ? null : total.taken + taken;
      totals.set(name, total);
    }
  }
  return [...totals.values()];
}

/**
 * The address of the job that has leased a GPU, if it is a training job.
 * @param {NodeDetail} node
 * @param {string | null} label NAMESPACE/NAME
 */
export function findJobAddress(node, label) {
  const job = node.jobs?.find((one) => `${one.namespace}/${one.name}` === label);
  return job?.kind && job.uid ? buildJobAddress({ ...job, kind: job.kind, uid: job.uid }) : null;
}

/** @param {NodeDetail} node */
export function countGpus(node) {
  return { all: node.gpus.length, leased: node.gpus.filter((gpu) => gpu.state === "leased").length };
}
