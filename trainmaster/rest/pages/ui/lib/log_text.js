// What a program printed, as pieces of text with classes. Nothing in it can hide or disguise anything: control and bidi
// characters become visible signs, and background colours are ignored, so that text never has the colour of its ground.

/**
 * @typedef {object} Piece
 * @property {string} text
 * @property {string} style classes, separated by spaces
 */

/** Longer lines are cut until somebody asks for all of them. */
export const MOST_CHARACTERS = 4096;

const SPECIAL = new RegExp(
  [
    "\\x1b\\[([\\d;:]*)m", // colours and weights
    "\\x1b\\[[0-?]*[ -/]*[@-ln-~]", // movements of the cursor and erasing: progress bars
    "[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f]",
    "[\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ufff9-\\ufffb]",
  ].join("|"),
  "g",
);

/**
 * What a terminal would show of a line that a progress bar has written several times.
 * @param {string} text
 */
export function collapseReturns(text) {
  if (!text.includes("\r")) return text;
  const parts = text.split("\r");
  return parts.findLast((part) => part !== "") ?? "";
}

/**
 * @param {string} text one line
 * @returns {Piece[]}
 */
export function parseLine(text) {
  /** @type {Piece[]} */
  const pieces = [];
  const style = new Style();
  let begin = 0;
  for (const match of text.matchAll(SPECIAL)) {
    if (match.index > begin) pieces.push({ text: text.slice(begin, match.index), style: style.classes });
    begin = match.index + match[0].length;
    if (match[1] !== undefined) style.apply(match[1]);
    else if (match[0].length === 1) pieces.push({ text: showControl(match[0]), style: "control" });
  }
  if (begin < text.length) pieces.push({ text: text.slice(begin), style: style.classes });
  return pieces;
}

/** @param {string} text */
export function toPlain(text) {
  return parseLine(collapseReturns(text))
    .map((piece) => piece.text)
    .join("");
}

/** @param {string} character */
export function showControl(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/**
 * A name or message of a job, with control characters visible and without colours.
 * @param {string} text
 */
export function toVisible(text) {
  return text.replace(SPECIAL, (found) => {
    if (found === "\n") return found;
    return found.length === 1 ? showControl(found) : "";
  });
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

class Style {
  /** @type {Set<string>} */
  #flags = new Set();
  #colour = "";

  get classes() {
    return [...this.#flags, ...(this.#colour ? [this.#colour] : [])].join(" ");
  }

  /** @param {string} codes those of `ESC [ codes m` */
  apply(codes) {
    const numbers = codes.split(/[;:]/).map((code) => Number(code || 0));
    for (let index = 0; index < numbers.length; index += 1) {
      const code = numbers[index] ?? 0;
      if (code === 38 || code === 48) {
        const { colour, length } = readColour(numbers.slice(index + 1));
        if (code === 38) this.#colour = colour;
        index += length;
      } else {
        this.#applyOne(code);
      }
    }
  }

  /** @param {number} code */
  #applyOne(code) {
    const flags = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
    const flag = /** @type {Record<number, string>} */ (flags)[code];
    /** @type {Record<number, string[]>} */
    const ends = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"] };
    if (flag) this.#flags.add(flag);
    else if (code === 0) {
      this.#flags.clear();
      this.#colour = "";
    } else if (code === 39) this.#colour = "";
    else if (code >= 30 && code <= 37) this.#colour = `ansi-${NAMES[code - 30]}`;
    else if (code >= 90 && code <= 97) this.#colour = `ansi-${NAMES[code - 90]}`;
    else for (const one of ends[code] ?? []) this.#flags.delete(one);
  }
}

/**
 * The colour behind 38 and 48, as the nearest of eight: those can be read on both themes.
 * @param {number[]} numbers
 */
function readColour(numbers) {
  const [space, first = 0, green = 0, blue = 0] = numbers;
  if (space === 5) return { colour: readIndexed(first), length: 2 };
  if (space === 2) return { colour: findNearest(first, green, blue), length: 4 };
  return { colour: "", length: 0 };
}

/** @param {number} index of the 256 colours */
function readIndexed(index) {
  if (index < 16) return `ansi-${NAMES[index % 8]}`;
  if (index >= 232) return index < 244 ? "ansi-black" : "ansi-white";
  const levels = [0, 95, 135, 175, 215, 255];
  const cube = index - 16;
  const at = [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((step) => levels[step] ?? 0);
  return findNearest(at[0] ?? 0, at[1] ?? 0, at[2] ?? 0);
}

/**
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
function findNearest(red, green, blue) {
  const most = Math.max(red, green, blue);
  const isGrey = most - Math.min(red, green, blue) < 32;
  if (isGrey) return most < 128 ? "ansi-black" : "ansi-white";
  const half = most * 0.6;
  return `ansi-${NAMES[(red >= half ? 1 : 0) + (green >= half ? 2 : 0) + (blue >= half ? 4 : 0)]}`;
}

/**
 * The pieces with what was searched for marked.
 * @param {Piece[]} pieces
 * @param {string} sought lower case; "": nothing
 * @returns {Piece[]}
 */
export function markSought(pieces, sought) {
  if (!sought) return pieces;
  const whole = pieces.map((piece) => piece.text).join("").toLowerCase();
  /** @type {Piece[]} */
  const marked = [];
  let begin = 0; // of the piece
  let hit = whole.indexOf(sought);
  for (const piece of pieces) {
    const end = begin + piece.text.length;
    let at = begin;
    while (at < end) {
      while (hit >= 0 && hit + sought.length <= at) hit = whole.indexOf(sought, hit + sought.length);
      const isHit = hit >= 0 && hit <= at;
      const until = Math.min(end, hit < 0 ? end : isHit ? hit + sought.length : hit);
      marked.push({ text: piece.text.slice(at - begin, until - begin), style: isHit ? `${piece.style} sought` : piece.style });
      at = until;
    }
    begin = end;
  }
  return marked;
}
