// Data that a component asks for once, and again when what it depends on changes.
import { useEffect, useState } from "../html.js";
import { ApiProblem } from "./api.js";

/**
 * @template T
 * @typedef {object} Loaded
 * @property {T | null} value the last one, while the next is loading
 * @property {ApiProblem | null} problem
 * @property {boolean} isLoading
 */

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {unknown[]} inputs another load begins when one of them changes
 * @returns {Loaded<T>}
 */
export function useLoaded(load, inputs) {
  const [state, setState] = useState(/** @type {Loaded<T>} */ ({ value: null, problem: null, isLoading: true }));
  useEffect(() => {
    const controller = new AbortController();
    setState((before) => ({ ...before, isLoading: true }));
    load(controller.signal).then(
      (value) => {
        if (!controller.signal.aborted) setState({ value, problem: null, isLoading: false });
      },
      (error) => {
        if (controller.signal.aborted) return;
        if (!(error instanceof ApiProblem)) throw error;
        setState({ value: null, problem: error, isLoading: false });
      },
    );
    return () => controller.abort();
  }, inputs);
  return state;
}
