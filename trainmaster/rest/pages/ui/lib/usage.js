// What the ranks of a job use: now, from the stream, and over time, from the server and then from the stream.
import { signal } from "../html.js";

/** @typedef {import("../api.js").Usage} Usage */
/** @typedef {import("../api.js").RankNow} RankNow */
/** @typedef {import("../api.js").RankUsageCurve} RankUsageCurve */
/** @typedef {{at: number, attempt: number, now: RankNow[]}} Moment */
/** @typedef {"cpu" | "memory" | "gpu" | "gpu_memory"} Measure */

/** @type {readonly Measure[]} */
export const MEASURES = ["cpu", "memory", "gpu", "gpu_memory"];
export const RANGES = ["hour", "day", "all"];
const MIB = 2 ** 20;
const HOUR = 3600;

export class UsageState {
  /** @type {import("../html.js").Signal<Moment | null>} */
  moment = signal(null);

  /**
   * @param {string} event
   * @param {any} data
   */
  take(event, data) {
    if (event === "usage") this.moment.value = data;
    if (event === "end") this.moment.value = null;
  }
}

/** @param {RankNow} rank @returns {Record<Measure, number | null>} as in curves */
export function readMeasures(rank) {
  const percents = rank.gpus.map((gpu) => gpu.percent).filter((one) => one !== null);
  const sizes = rank.gpus.map((gpu) => gpu.memory_mib).filter((one) => one !== null);
  /** @param {number[]} numbers */
  const add = (numbers) => numbers.reduce((one, other) => one + other, 0);
  return {
    cpu: rank.cpu,
    memory: rank.memory,
    gpu: percents.length ? Math.round(add(percents) / percents.length) : null,
    gpu_memory: sizes.length ? add(sizes) * MIB : null,
  };
}

/**
 * With what was measured now, if enough time has passed since the last point.
 * @param {Usage} usage
 * @param {Moment} moment
 * @param {string} range
 * @returns {Usage}
 */
export function extendUsage(usage, moment, range) {
  const last = usage.times.at(-1) ?? 0;
  if (moment.at - last < (range === "hour" ? 10 : 60)) return usage;
  const begin = range === "hour" ? usage.times.findIndex((time) => time > moment.at - HOUR) : 0;
  const first = begin < 0 ? usage.times.length : begin;
  const kept = usage.times.length - first;
  /** @type {Map<string, RankUsageCurve>} */
  const ranks = new Map(usage.ranks.map((rank) => [nameRank(rank), cutRank(rank, first)]));
  for (const rank of moment.now) {
    const known = ranks.get(nameRank(rank));
    if (!known) ranks.set(nameRank(rank), { job: rank.job, worker: rank.worker, ...emptyRank(kept, readMeasures(rank)) });
  }
  const now = new Map(moment.now.map((rank) => [nameRank(rank), readMeasures(rank)]));
  for (const [name, rank] of ranks) {
    for (const measure of MEASURES) {
      const value = now.get(name)?.[measure] ?? null;
      // A rank without GPUs has no curve of them.
      if (rank[measure].length === kept && (kept || value !== null || !measure.startsWith("gpu"))) rank[measure].push(value);
    }
  }
  return { ...usage, times: [...usage.times.slice(first), moment.at], attempts: [...usage.attempts.slice(first), moment.attempt], ranks: [...ranks.values()] };
}

/** @param {{job: string, worker: number}} rank */
export function nameRank(rank) {
  return `${rank.job} ${rank.worker}`;
}

/**
 * @param {RankUsageCurve} rank
 * @param {number} first
 * @returns {RankUsageCurve}
 */
function cutRank(rank, first) {
  return { ...rank, cpu: rank.cpu.slice(first), memory: rank.memory.slice(first), gpu: rank.gpu.slice(first), gpu_memory: rank.gpu_memory.slice(first) };
}

/**
 * @param {number} count
 * @param {Record<Measure, number | null>} values
 * @returns {Record<Measure, (number | null)[]>}
 */
function emptyRank(count, values) {
  /** @param {boolean} isThere @returns {(number | null)[]} */
  const gaps = (isThere) => (isThere ? Array(count).fill(null) : []);
  return { cpu: gaps(true), memory: gaps(true), gpu: gaps(values.gpu !== null), gpu_memory: gaps(values.gpu_memory !== null) };
}

/**
 * Of many ranks three lines instead: the least, the mean and the greatest.
 * @param {(number | null)[][]} curves
 * @returns {{least: (number | null)[], mean: (number | null)[], most: (number | null)[]}}
 */
export function sumUpRanks(curves) {
  const count = Math.max(0, ...curves.map((curve) => curve.length));
  /** @type {{least: (number | null)[], mean: (number | null)[], most: (number | null)[]}} */
  const found = { least: [], mean: [], most: [] };
  for (let index = 0; index < count; index += 1) {
    let [least, most, total, known] = [Infinity, -Infinity, 0, 0];
    for (const curve of curves) {
      const value = curve[index];
      if (value === null || value === undefined) continue;
      least = Math.min(least, value);
      most = Math.max(most, value);
      total += value;
      known += 1;
    }
    found.least.push(known ? least : null);
    found.mean.push(known ? total / known : null);
    found.most.push(known ? most : null);
  }
  return found;
}
