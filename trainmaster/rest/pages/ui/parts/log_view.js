// The logs of a job: which ranks and attempt, the search in what is loaded, and the lines.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { findLine, getLineKey, getSearchText } from "../lib/log_lines.js";
import { preferences, setPreferences } from "../lib/preferences.js";
import { replaceQuery, route } from "../lib/router.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { formatTime, zoneName } from "../lib/time.js";
import { showProblem } from "../lib/toasts.js";
import { Empty, Loading, Problem } from "./basics.js";
import { Icon } from "./icons.js";
import { LogList } from "./log_list.js";

/** @typedef {import("../lib/log_lines.js").LogLines} LogLines */

const MOST_LOADED = 100_000;
/** A search that is longer than this waits until typing pauses. */
const MANY_LINES = 20_000;

/**
 * @param {object} props
 * @param {LogLines} props.lines
 * @param {{path: string, query: import("../lib/api.js").Query}} props.source where the server has the lines
 * @param {number[]} props.ranks
 * @param {number} props.attempts how many there have been
 * @param {string} props.fileName for saving
 */
export function LogView({ lines, source, ranks, attempts, fileName }) {
  const { query } = route.value;
  const version = lines.version.value;
  const sought = useSettled((query.get("find") ?? "").toLowerCase(), lines.entries.length > MANY_LINES ? 200 : 0);
  const hits = useMemo(() => findHits(lines, sought), [sought, version]);
  const [reached, setReached] = useState({ sought: "", at: -1 });
  // Another search begins before its first hit.
  const at = reached.sought === sought ? reached.at : -1;
  const [jump, setJump] = useState(/** @type {{index: number} | null} */ (null));
  const target = query.get("line") ?? "";
  const reachTarget = useTarget(lines, target, setJump);
  const { wrap, times } = preferences.value;
  /** @param {number} step */
  const go = (step) => {
    if (!hits.length) return;
    const next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
    setReached({ sought, at: next });
    setJump({ index: hits[next] ?? 0 });
  };
  /** @param {string} key */
  const choose = (key) => {
    reachTarget(key);
    replaceQuery({ line: key });
  };
  /** @param {number} step goes from the line of the address, or from the last one, to another line */
  const move = (step) => {
    const from = target ? findLine(lines.entries, target) : lines.entries.length;
    let index = from + step;
    while (lines.entries[index] && lines.entries[index]?.kind !== "line") index += step;
    const entry = lines.entries[index];
    if (!entry) return;
    choose(getLineKey(entry));
    setJump({ index });
  };
  useShortcuts({ j: () => move(1), k: () => move(-1) });
  const loadEarlier = async () => {
    try {
      const answer = await get(source.path, { ...source.query, tail_lines: MOST_LOADED });
      lines.prepend(answer.lines, answer.truncated);
    } catch (error) {
      showProblem(error);
    }
  };
  const shown = { wrap, times, sought, current: hits[at] ?? -1, target };
  return html`<section class="logs" aria-label=${t("tab.logs")}>
    <div class="log-tools">
      <${Search} hits=${hits.length} at=${at} isSought=${sought !== ""} onGo=${go} />
      <${Selects} ranks=${ranks} attempts=${attempts} />
      <${Toggle} isOn=${wrap} text=${t("log.wrap")} onClick=${() => setPreferences({ wrap: !wrap })} />
      <${Toggle} isOn=${times} text=${`${t("log.times")} (${zoneName.value})`} onClick=${() => setPreferences({ times: !times })} />
      <button type="button" onClick=${() => save(lines, fileName)} disabled=${!lines.entries.length}>${t("log.save")}</button>
    </div>
    <${Problem} problem=${lines.problem.value} />
    ${lines.hasEarlier.value ? html`<p class="notice">${t("log.earlier.text", { n: lines.entries.length })} <button type="button" onClick=${loadEarlier}>${t("log.earlier")}</button></p>` : null}
    <${Body} lines=${lines} shown=${shown} jump=${jump} onChoose=${choose} />
  </section>`;
}

/**
 * @param {object} props
 * @param {LogLines} props.lines
 * @param {import("./log_list.js").Shown} props.shown
 * @param {{index: number} | null} props.jump
 * @param {(key: string) => void} props.onChoose
 */
function Body({ lines, shown, jump, onChoose }) {
  if (lines.entries.length) {
    return html`<${LogList} lines=${lines} shown=${shown} jump=${jump} onChoose=${onChoose} />
      ${lines.end.value ? html`<p class="quiet log-end">${t("log.end")}</p>` : null}`;
  }
  if (!lines.isLoaded.value && !lines.end.value && !lines.problem.value) return html`<${Loading} />`;
  return html`<${Empty}>${t("log.none")}<//>`;
}

/** @param {{isOn: boolean, text: string, onClick: () => void}} props */
function Toggle({ isOn, text, onClick }) {
  return html`<button type="button" aria-pressed=${String(isOn)} onClick=${onClick}>${text}</button>`;
}

/** @param {{hits: number, at: number, isSought: boolean, onGo: (step: number) => void}} props */
function Search({ hits, at, isSought, onGo }) {
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  useShortcuts({ "/": () => box.current?.select() });
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.key === "Enter") onGo(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") box.current?.blur();
  };
  return html`<span class="search"><${Icon} name="search" /><input ref=${box} type="search" value=${route.value.query.get("find") ?? ""} placeholder=${t("log.search")} aria-label=${t("log.search")}
      onInput=${(/** @type {any} */ event) => replaceQuery({ find: event.target.value })} onKeyDown=${press} />
    <span class="hits" aria-live="polite">${isSought ? t("log.hits", { at: at + 1, n: hits }) : ""}</span>
    <button type="button" class="bare" disabled=${!hits} onClick=${() => onGo(-1)} aria-label=${t("log.previous")}><${Icon} name="up" /></button>
    <button type="button" class="bare" disabled=${!hits} onClick=${() => onGo(1)} aria-label=${t("log.next")}><${Icon} name="down" /></button>
  </span>`;
}

/** @param {{ranks: number[], attempts: number}} props */
function Selects({ ranks, attempts }) {
  const { query } = route.value;
  const rank = query.get("rank") ?? "";
  const attempt = query.get("attempt") ?? "";
  /** @param {any} event */
  const chooseRank = (event) => replaceQuery({ rank: event.target.value, line: null });
  /** @param {any} event */
  const chooseAttempt = (event) => replaceQuery({ attempt: event.target.value, line: null });
  return html`
    ${ranks.length > 1 || rank ? html`<select value=${rank} aria-label=${t("log.rank")} onChange=${chooseRank}>
      <option value="">${t("log.rank.all")}</option>
      ${ranks.map((one) => html`<option key=${one} value=${String(one)}>${t("log.rank.this", { rank: String(one) })}</option>`)}
    </select>` : null}
    ${attempts > 1 || attempt ? html`<select value=${attempt} aria-label=${t("log.attempts")} onChange=${chooseAttempt}>
      <option value="">${t("log.attempts.all")}</option>
      ${Array.from({ length: attempts }, (_, one) => html`<option key=${one} value=${String(one)}>${t("log.attempt", { attempt: String(one) })}</option>`)}
    </select>` : null}`;
}

/**
 * @param {string} value
 * @param {number} milliseconds 0: at once
 */
function useSettled(value, milliseconds) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (!milliseconds) {
      setSettled(value);
      return undefined;
    }
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/**
 * @param {LogLines} lines
 * @param {string} sought
 */
function findHits(lines, sought) {
  /** @type {number[]} */
  const hits = [];
  if (!sought) return hits;
  lines.entries.forEach((entry, index) => {
    if (entry.kind === "line" && getSearchText(entry).includes(sought)) hits.push(index);
  });
  return hits;
}

/**
 * Goes to the line of the address, once, as soon as it is loaded.
 * @param {LogLines} lines
 * @param {string} target
 * @param {(jump: {index: number}) => void} setJump
 */
function useTarget(lines, target, setJump) {
  const reached = useRef("");
  useEffect(() => {
    if (!target || reached.current === target || !lines.entries.length) return;
    const index = findLine(lines.entries, target);
    if (index < 0) return;
    reached.current = target;
    setJump({ index });
  }, [target, lines.version.value]);
  // Whoever chooses a line sees it already.
  return (/** @type {string} */ key) => {
    reached.current = key;
  };
}

/**
 * @param {LogLines} lines
 * @param {string} fileName
 */
function save(lines, fileName) {
  const texts = lines.entries.map((entry) => (entry.kind === "line" ? `${formatTime(entry.time)} ${entry.job}/${entry.worker} ${entry.text}\n` : `--- ${entry.text}\n`));
  const address = URL.createObjectURL(new Blob(texts, { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = fileName;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
