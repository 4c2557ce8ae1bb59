// The lines of a log. Only those that can be seen are in the document; where one reads does not move when lines come.
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../html.js";
import { Heights } from "../lib/heights.js";
import { formatNumber, t } from "../lib/i18n.js";
import { getLineKey } from "../lib/log_run.js";
import { collapseReturns, markSought, MOST_CHARACTERS, parseLine } from "../lib/log_text.js";
import { formatClock, formatTime } from "../lib/time.js";
import { showProblem } from "../lib/toasts.js";
import { useHasLeapt, useWatchedPlace } from "./table.js";

/** @typedef {import("../lib/log_run.js").Entry} Entry */
/** @typedef {import("../lib/log_lines.js").LogLines} LogLines */

const LINE = 18;
const MORE_PIXELS = 400;
/** Near enough to the end to follow it. */
const NEAR = 6;
/** So near to a side of what is loaded more of it is asked for. */
const SOON_PIXELS = 1500;

/**
 * @typedef {object} Shown
 * @property {boolean} wrap
 * @property {boolean} times
 * @property {string} sought lower case
 * @property {string} current key of the line that the search is at, or ""
 * @property {string} target key of the line in the address
 */

/** @typedef {{index: number, isEnd: boolean}} Jump another object: go there */

/**
 * @param {object} props
 * @param {LogLines} props.lines
 * @param {Shown} props.shown
 * @param {Jump | null} props.jump
 * @param {{current: number}} props.top is told which entry is the first that is seen
 * @param {(key: string) => void} props.onChoose a line is to get an address
 */
export function LogList({ lines, shown, jump, top, onChoose }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const place = useRef({ top: 0, height: 600 });
  const [, redraw] = useReducer((/** @type {number} */ count) => count + 1, 0);
  const heights = useHeights(lines, shown.wrap, scroller);
  const follow = useFollow(scroller, lines);
  const expanded = useMemo(() => new WeakSet(), []);
  useWatchedPlace(scroller, (next) => {
    const isTaller = next.height !== place.current.height;
    place.current = next;
    // The end is shown when its lines are drawn.
    if (isTaller || !follow.isFollowing()) redraw(0);
  });
  useMeasuredRows(scroller, heights, redraw);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!jump || !box) return;
    if (jump.isEnd) {
      follow.resume();
      return;
    }
    follow.release();
    box.scrollTop = heights.findTop(jump.index) - box.clientHeight / 3;
    // What has no content yet cannot be scrolled: the rows are made first.
    redraw(0);
  }, [jump]);
  const height = place.current.height;
  const seen = { top: follow.isOn ? Math.max(0, heights.total - height) : place.current.top, height };
  const more = useHasLeapt(seen) && follow.isOn ? LINE : MORE_PIXELS;
  const first = heights.count ? heights.findIndex(Math.max(0, seen.top - more)) : 0;
  const last = heights.count ? heights.findIndex(seen.top + height + more) + 1 : 0;
  top.current = heights.count ? heights.findIndex(seen.top) : 0;
  /** @param {Entry} entry */
  const expand = (entry) => {
    expanded.add(entry);
    redraw(0);
  };
  return html`<div class="log-frame">
    <div class=${shown.wrap ? "log wrap" : "log"} ref=${scroller} tabindex="0" role="log" aria-live="off" aria-label=${t("tab.logs")}>
      <div class="log-room" style=${{ height: `${heights.total}px` }}>
        <div class="log-rows" style=${{ transform: `translateY(${heights.count ? heights.findTop(first) : 0}px)` }}>
          ${lines.entries.slice(first, last).map((entry, offset) => {
            const index = first + offset;
            return html`<${Row} key=${lines.start + index} index=${index} entry=${entry} shown=${shown} isWhole=${expanded.has(entry)} onExpand=${expand} onChoose=${onChoose} />`;
          })}
        </div>
      </div>
    </div>
    ${follow.isOn ? null : html`<button type="button" class="follow" onClick=${follow.resume}>${t("log.follow")}${lines.missed ? html` <b>${t("log.new", { n: lines.missed })}</b>` : null}</button>`}
  </div>`;
}

/**
 * @param {object} props
 * @param {number} props.index
 * @param {Entry} props.entry
 * @param {Shown} props.shown
 * @param {boolean} props.isWhole
 * @param {(entry: Entry) => void} props.onExpand
 * @param {(key: string) => void} props.onChoose
 */
function Row({ index, entry, shown, isWhole, onExpand, onChoose }) {
  if (entry.kind !== "line") {
    const text = entry.text || t("log.attempt", { attempt: String(entry.attempt) });
    return html`<div class="mark mark-${entry.kind}" data-index=${index}><span>${text}</span></div>`;
  }
  const key = getLineKey(entry);
  const text = collapseReturns(entry.text);
  const isCut = text.length > MOST_CHARACTERS && !isWhole;
  const pieces = markSought(parseLine(isCut ? text.slice(0, MOST_CHARACTERS) : text), shown.sought);
  const where = t("log.where", { job: entry.job, worker: String(entry.worker), attempt: String(entry.attempt), container: entry.container });
  const style = ["line", key === shown.target ? "target" : "", key === shown.current ? "current" : "", isWhole ? "whole" : ""].join(" ");
  return html`<div class=${style} data-index=${index}>
    <span class="gutter" onClick=${() => onChoose(key)} title=${`${formatTime(entry.time)} ${where}`}>
      ${shown.times ? html`<span class="clock">${formatClock(entry.time)}</span>` : null}
      <span class="rank rank-${entry.worker % 8}">${entry.job === "node" ? entry.worker : `${entry.job} ${entry.worker}`}</span>
    </span><span class="text">${pieces.map((piece, at) => (piece.style ? html`<span key=${at} class=${piece.style}>${piece.text}</span>` : piece.text))}
    ${isCut ? html`<button type="button" class="bare more" onClick=${() => onExpand(entry)}>${t("log.whole", { size: formatNumber(text.length) })}</button>` : null}</span>
  </div>`;
}

/**
 * One height per entry. They are guessed when lines wrap, until they are measured.
 * @param {LogLines} lines
 * @param {boolean} wrap
 * @param {{current: HTMLElement | null}} scroller
 */
function useHeights(lines, wrap, scroller) {
  const heights = useMemo(() => new Heights(), []);
  const seen = useRef({ generation: -1, start: 0, wrap });
  const moved = useRef(0);
  const known = seen.current;
  if (known.generation !== lines.generation || known.wrap !== wrap) {
    heights.clear();
  } else if (lines.start > known.start) {
    moved.current -= heights.dropFirst(lines.start - known.start);
  } else if (lines.start < known.start) {
    const before = heights.total;
    const kept = Array.from({ length: heights.count }, (_, index) => heights.get(index));
    heights.clear();
    for (let index = 0; index < known.start - lines.start; index += 1) heights.push(LINE);
    moved.current += heights.total;
    for (const height of kept) heights.push(height);
    if (!before) moved.current = 0;
  }
  if (heights.count > lines.entries.length) heights.dropLast(lines.entries.length);
  seen.current = { generation: lines.generation, start: lines.start, wrap };
  const columns = Math.max(20, ((scroller.current?.clientWidth ?? 800) - 140) / 7.3);
  for (let index = heights.count; index < lines.entries.length; index += 1) {
    heights.push(wrap ? LINE * Math.max(1, Math.ceil(Math.min(lines.entries[index]?.text.length ?? 0, MOST_CHARACTERS) / columns)) : LINE);
  }
  useLayoutEffect(() => {
    if (moved.current && scroller.current) scroller.current.scrollTop += moved.current;
    moved.current = 0;
  });
  return heights;
}

/**
 * Replaces guessed heights by those of the rows that are shown, without moving what is read.
 * @param {{current: HTMLElement | null}} scroller
 * @param {Heights} heights
 * @param {(action: number) => void} redraw
 */
function useMeasuredRows(scroller, heights, redraw) {
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    let isChanged = false;
    let above = 0;
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll("[data-index]"))) {
      const index = Number(row.dataset.index);
      const height = row.offsetHeight;
      const change = height - heights.get(index);
      if (!change || index >= heights.count) continue;
      if (heights.findTop(index) < box.scrollTop) above += change;
      heights.set(index, height);
      isChanged = true;
    }
    if (!isChanged) return;
    if (above) box.scrollTop += above;
    redraw(0);
  });
}

/**
 * Stays at the end while lines come, until somebody scrolls up; then loads what is near.
 * @param {{current: HTMLElement | null}} scroller
 * @param {LogLines} lines
 */
function useFollow(scroller, lines) {
  const [isOn, setOn] = useState(!lines.isFar);
  const state = useRef({ isOn, top: 0 });
  /** @param {boolean} next */
  const turn = (next) => {
    if (next) lines.goToEnd();
    else lines.leave();
    state.current.isOn = next;
    setOn(next);
  };
  useEffect(() => {
    const box = scroller.current;
    if (!box) return undefined;
    const look = () => {
      const top = box.scrollTop;
      const left = box.scrollHeight - top - box.clientHeight;
      // The end also moves away while lines come: only somebody who scrolls up leaves it.
      const isUp = top < state.current.top - 1;
      state.current.top = top;
      if (state.current.isOn && isUp && left > NEAR) turn(false);
      else if (!state.current.isOn && left <= NEAR && !lines.isFar) turn(true);
      if (state.current.isOn) return;
      if (top < SOON_PIXELS) lines.loadBefore().catch(showProblem);
      if (left < SOON_PIXELS) lines.loadAfter().catch(showProblem);
    };
    box.addEventListener("scroll", look, { passive: true });
    return () => box.removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    if (state.current.isOn) {
      box.scrollTop = box.scrollHeight;
      state.current.top = box.scrollTop;
    } else if (!lines.isFar) {
      // What was left has met the end again; it may not be read to it.
      if (box.scrollHeight - box.scrollTop - box.clientHeight <= NEAR) turn(true);
      else lines.leave();
    }
  });
  return { isOn, isFollowing: () => state.current.isOn, release: () => turn(false), resume: () => turn(true) };
}
