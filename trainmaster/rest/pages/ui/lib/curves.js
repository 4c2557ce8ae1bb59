// Curves as numbers: smoothed, by step or time, and tame enough to be drawn whatever a program reported.
import { formatValue } from "./quantity.js";

/**
 * What a job reported; every list has one entry for each of `times`.
 * @typedef {import("../api.js").Series} Series
 */
/** @typedef {(number | null)[]} Values null: a gap */
/** @typedef {(number | null | undefined)[]} Line undefined: nothing there, and no gap */
/** @typedef {{x: number, attempt: number}} Restart */

/** A page that looks on for days reads everything anew from so many points on; the server thins them. */
export const MOST_POINTS = 1024;

/**
 * With the points that came since.
 * @param {Series} known
 * @param {Series} more
 * @returns {Series}
 */
export function extendSeries(known, more) {
  const last = known.times.at(-1) ?? 0;
  const first = more.times.findIndex((time) => time > last);
  if (first < 0) return known;
  const count = more.times.length - first;
  const before = known.times.length;
  const names = [...new Set([...known.metrics, ...more.metrics].map((one) => one.name))];
  /** @param {Series} series @param {string} name */
  const find = (series, name) => series.metrics.find((one) => one.name === name)?.values;
  const metrics = names.map((name) => {
    const old = find(known, name) ?? Array(before).fill(null);
    const fresh = find(more, name)?.slice(first) ?? Array(count).fill(null);
    return { name, values: [...old, ...fresh] };
  });
  return {
    ...known,
    times: [...known.times, ...more.times.slice(first)],
    attempts: [...known.attempts, ...more.attempts.slice(first)],
    steps: [...known.steps, ...more.steps.slice(first)],
    percents: [...known.percents, ...more.percents.slice(first)],
    metrics,
  };
}

/**
 * The exponential mean, without the pull of its beginning. It begins anew with each attempt and after no gap.
 * @param {Values} values
 * @param {number[]} attempts
 * @param {number} weight of what came before, 0 to 1
 * @returns {Values}
 */
export function smooth(values, attempts, weight) {
  let mean = 0;
  let share = 0;
  let last = attempts[0];
  return values.map((value, index) => {
    if (attempts[index] !== last) mean = share = 0;
    last = attempts[index];
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    share = share * weight + (1 - weight);
    return mean / share;
  });
}

/**
 * The values as they are drawn, and how their numbers are called: as powers of ten, or, if they are huge or tiny, in units
 * of one power of ten, because sums of them would be infinite.
 * @param {Values} values
 * @param {boolean} isLog
 * @returns {{values: Values, name: (drawn: number) => string}}
 */
export function tame(values, isLog) {
  if (isLog) {
    const drawn = values.map((value) => (value !== null && value > 0 ? Math.log10(value) : null));
    return { values: drawn, name: namePower };
  }
  const greatest = values.reduce((/** @type {number} */ most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
  if (greatest === 0 || (greatest < 1e9 && greatest >= 1e-4)) return { values, name: formatValue };
  const exponent = Math.floor(Math.log10(greatest));
  // In two steps: 10 to the power of 308 is as far as numbers go.
  const half = 10 ** Math.trunc(exponent / 2);
  const rest = 10 ** (exponent - Math.trunc(exponent / 2));
  const drawn = values.map((value) => (value === null ? null : value / half / rest));
  return { values: drawn, name: (number) => (number === 0 ? "0" : `${formatValue(number)}e${exponent}`) };
}

/** @param {number} power */
function namePower(power) {
  if (Math.abs(power) > 4) return `${Number.isInteger(power) ? "" : `${formatValue(10 ** (power - Math.floor(power)))}·`}1e${Math.floor(power)}`;
  return formatValue(10 ** power);
}

/**
 * Where an axis begins and ends so that everything is seen.
 * @param {Line[]} lines
 * @param {number} [least] where it begins at the latest
 * @returns {[number, number]}
 */
export function findRange(lines, least) {
  let from = Infinity;
  let to = -Infinity;
  for (const line of lines) {
    for (const value of line) {
      if (value === null || value === undefined) continue;
      if (value < from) from = value;
      if (value > to) to = value;
    }
  }
  if (from > to) return [0, 1];
  if (least !== undefined) from = Math.min(from, least);
  const room = to - from || Math.abs(to) || 1;
  return [from === least ? from : from - room * 0.06, to + room * 0.08];
}

/**
 * Where the lines of a logarithmic axis are: at 1, 2 and 5 of each power of ten, or, if these are many, at some powers.
 * @param {number} from
 * @param {number} to both as powers of ten
 * @returns {number[]}
 */
export function listPowers(from, to) {
  const span = to - from;
  if (span < 0.5) return Array.from({ length: 4 }, (_, index) => from + (span * (index + 0.5)) / 4);
  const parts = span > 3 ? [1] : span > 1.5 ? [1, 3] : [1, 2, 5];
  const step = Math.max(1, Math.ceil(span / 6));
  const found = [];
  for (let power = Math.floor(from / step) * step; power <= to; power += step) {
    for (const part of parts) found.push(power + Math.log10(part));
  }
  return found.filter((power) => power >= from && power <= to);
}

/**
 * One curve over its steps. Steps go back when a job continues from a checkpoint, so each attempt is a line of its own.
 * @param {Values} steps
 * @param {number[]} attempts
 * @param {Values} values
 * @returns {{xs: number[], lines: Line[]}}
 */
export function alignSteps(steps, attempts, values) {
  const { xs, places } = placeSteps(steps);
  const numbers = [...new Set(attempts)];
  /** @type {Line[]} */
  const lines = numbers.map(() => Array(xs.length).fill(undefined));
  steps.forEach((step, index) => {
    const place = step === null ? undefined : places.get(step);
    const line = lines[numbers.indexOf(attempts[index] ?? 0)];
    if (place !== undefined && line) line[place] = values[index] ?? null;
  });
  return { xs, lines };
}

/** @type {WeakMap<Values, {xs: number[], places: Map<number, number>}>} */
const placed = new WeakMap();

/**
 * All curves of a job have the same steps, which are sorted once.
 * @param {Values} steps
 */
function placeSteps(steps) {
  let found = placed.get(steps);
  if (!found) {
    const xs = [...new Set(steps.filter((step) => step !== null))].sort((one, other) => one - other);
    found = { xs, places: new Map(xs.map((step, index) => [step, index])) };
    placed.set(steps, found);
  }
  return found;
}

/**
 * Where later attempts begin.
 * @param {Values} xs
 * @param {number[]} attempts
 * @returns {Restart[]}
 */
export function listRestarts(xs, attempts) {
  /** @type {Restart[]} */
  const found = [];
  for (let index = 1; index < xs.length; index += 1) {
    const attempt = attempts[index] ?? 0;
    const x = xs[index];
    if (attempt !== attempts[index - 1] && x !== null && x !== undefined) found.push({ x, attempt });
  }
  return found;
}

/**
 * @param {Values} values
 * @returns {{first: number, last: number, least: number, most: number} | null} null if there is no number
 */
export function summarize(values) {
  const known = values.filter((value) => value !== null);
  const [first] = known;
  const last = known.at(-1);
  if (first === undefined || last === undefined) return null;
  const least = known.reduce((one, other) => Math.min(one, other), Infinity);
  return { first, last, least, most: known.reduce((one, other) => Math.max(one, other), -Infinity) };
}
