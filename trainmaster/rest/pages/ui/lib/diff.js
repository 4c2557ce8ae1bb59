// What differs between two texts, line by line (Myers' algorithm, with a limit on the work). Pure; run in a worker.

/** @typedef {{kind: "same" | "added" | "removed" | "gap", text: string, left: number, right: number}} DiffLine */

const CONTEXT = 3;
/** More differences than this cost much time and say nothing: the rest is shown as replaced. */
const MOST_DIFFERENCES = 800;

/**
 * The lines that differ, each with a few around it. `left` and `right` are line numbers from 1 on, 0 where it is missing.
 * @param {string} before
 * @param {string} after
 * @returns {DiffLine[]}
 */
export function diffTexts(before, after) {
  const left = splitLines(before);
  const right = splitLines(after);
  return keepContext(diffLines(left, right));
}

/** @param {string} text */
function splitLines(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/**
 * @param {string[]} left
 * @param {string[]} right
 * @returns {DiffLine[]}
 */
function diffLines(left, right) {
  let begin = 0;
  while (begin < left.length && begin < right.length && left[begin] === right[begin]) begin += 1;
  let end = 0;
  while (end < left.length - begin && end < right.length - begin && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  const middle = diffMiddle(left.slice(begin, left.length - end), right.slice(begin, right.length - end));
  /** @type {DiffLine[]} */
  const found = [];
  let atLeft = 0;
  let atRight = 0;
  /** @param {DiffLine["kind"]} kind */
  const add = (kind) => {
    if (kind !== "added") atLeft += 1;
    if (kind !== "removed") atRight += 1;
    const text = (kind === "added" ? right[atRight - 1] : left[atLeft - 1]) ?? "";
    found.push({ kind, text, left: kind === "added" ? 0 : atLeft, right: kind === "removed" ? 0 : atRight });
  };
  for (let count = 0; count < begin; count += 1) add("same");
  for (const kind of middle) add(kind);
  for (let count = 0; count < end; count += 1) add("same");
  return found;
}

/**
 * @param {string[]} left
 * @param {string[]} right
 * @returns {("same" | "added" | "removed")[]}
 */
function diffMiddle(left, right) {
  const most = Math.min(left.length + right.length, MOST_DIFFERENCES);
  /** @type {Map<number, number>[]} how far each diagonal got, after so many differences */
  const rounds = [];
  let reach = new Map([[1, 0]]);
  for (let count = 0; count <= most; count += 1) {
    rounds.push(new Map(reach));
    const next = new Map(reach);
    for (let diagonal = -count; diagonal <= count; diagonal += 2) {
      let x = stepsDown(reach, diagonal, count) ? (reach.get(diagonal + 1) ?? 0) : (reach.get(diagonal - 1) ?? 0) + 1;
      while (x < left.length && x - diagonal < right.length && left[x] === right[x - diagonal]) x += 1;
      next.set(diagonal, x);
      if (x >= left.length && x - diagonal >= right.length) return walkBack(rounds, left.length, right.length, count);
    }
    reach = next;
  }
  return [...left.map(() => /** @type {const} */ ("removed")), ...right.map(() => /** @type {const} */ ("added"))];
}

/**
 * @param {Map<number, number>} reach
 * @param {number} diagonal
 * @param {number} count
 */
function stepsDown(reach, diagonal, count) {
  return diagonal === -count || (diagonal !== count && (reach.get(diagonal - 1) ?? -1) < (reach.get(diagonal + 1) ?? -1));
}

/**
 * @param {Map<number, number>[]} rounds
 * @param {number} x
 * @param {number} y
 * @param {number} last
 */
function walkBack(rounds, x, y, last) {
  /** @type {("same" | "added" | "removed")[]} */
  const kinds = [];
  for (let count = last; count >= 0; count -= 1) {
    const reach = rounds[count] ?? new Map();
    const diagonal = x - y;
    const isDown = stepsDown(reach, diagonal, count);
    const from = isDown ? diagonal + 1 : diagonal - 1;
    const fromX = reach.get(from) ?? 0;
    const fromY = fromX - from;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      kinds.push("same");
      x -= 1;
      y -= 1;
    }
    if (count > 0) kinds.push(isDown ? "added" : "removed");
    x = fromX;
    y = fromY;
  }
  return kinds.reverse();
}

/** @param {DiffLine[]} lines */
function keepContext(lines) {
  const isNear = new Array(lines.length).fill(false);
  lines.forEach((line, at) => {
    if (line.kind !== "same") isNear.fill(true, Math.max(0, at - CONTEXT), at + CONTEXT + 1);
  });
  /** @type {DiffLine[]} */
  const found = [];
  lines.forEach((line, at) => {
    if (isNear[at]) found.push(line);
    else if (found.at(-1)?.kind !== "gap") found.push({ kind: "gap", text: "", left: 0, right: 0 });
  });
  return found.length === 1 && found[0]?.kind === "gap" ? [] : found;
}
