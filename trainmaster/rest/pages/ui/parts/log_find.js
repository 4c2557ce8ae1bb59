// The search in a log: its box, and the list of what was found.
import { html, useEffect, useRef } from "../html.js";
import { t } from "../lib/i18n.js";
import { collapseReturns, markSought, parseLine } from "../lib/log_text.js";
import { getLineKey } from "../lib/log_run.js";
import { replaceQuery, route } from "../lib/router.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { formatClock } from "../lib/time.js";
import { Problem } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../lib/log_search.js").Found} Found */

/** So many stand in the list around the one that is shown. */
const MOST_SHOWN = 200;

/**
 * @param {object} props
 * @param {Found} props.found
 * @param {number} props.at index of the hit that is shown, or -1
 * @param {boolean} props.isListed
 * @param {(step: number) => void} props.onGo
 * @param {() => void} props.onList
 */
export function LogFind({ found, at, isListed, onGo, onList }) {
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  useShortcuts({ "/": () => box.current?.select() });
  const { query } = route.value;
  const isPattern = query.has("regex");
  const isEmpty = !found.hits.length;
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.key === "Enter") onGo(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") box.current?.blur();
  };
  return html`<span class="search log-search"><${Icon} name="search" /><input ref=${box} type="search" value=${query.get("find") ?? ""} placeholder=${t("log.search")} aria-label=${t("log.search")} maxlength="1000"
      onInput=${(/** @type {any} */ event) => replaceQuery({ find: event.target.value })} onKeyDown=${press} />
    <button type="button" class="pattern" aria-pressed=${String(isPattern)} title=${t("log.pattern")} onClick=${() => replaceQuery({ regex: isPattern ? null : "1" })}><span aria-hidden="true">.*</span><span class="unseen">${t("log.pattern")}</span></button>
    <span class="hits" aria-live="polite">${describe(found, at)}</span>
    <button type="button" class="bare" disabled=${isEmpty} onClick=${() => onGo(-1)} aria-label=${t("log.previous")}><${Icon} name="up" /></button>
    <button type="button" class="bare" disabled=${isEmpty} onClick=${() => onGo(1)} aria-label=${t("log.next")}><${Icon} name="down" /></button>
    <button type="button" disabled=${isEmpty} aria-expanded=${String(isListed && !isEmpty)} onClick=${onList}>${t("log.list")}</button>
  </span>`;
}

/**
 * @param {Found} found
 * @param {number} at
 */
function describe(found, at) {
  if (!found.sought || found.problem) return "";
  if (found.isRunning) return t("log.searching");
  return t("log.hits", { at: at + 1, n: found.hits.length });
}

/**
 * @param {object} props
 * @param {Found} props.found
 * @param {number} props.at
 * @param {boolean} props.isListed
 * @param {(index: number) => void} props.onChoose
 */
export function LogHits({ found, at, isListed, onChoose }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    list.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }, [at, isListed]);
  const stopped = found.stopped ? html`<p class="quiet log-stopped">${t(`log.stopped.${found.stopped}`)}</p>` : null;
  if (found.problem) return html`<${Problem} problem=${found.problem} />`;
  if (!isListed || !found.hits.length) return stopped;
  const first = Math.max(0, Math.min(at - MOST_SHOWN / 2, found.hits.length - MOST_SHOWN));
  const shown = found.hits.slice(first, first + MOST_SHOWN);
  const sought = found.isPattern ? "" : found.sought.toLowerCase();
  return html`${stopped}<ol class="log-hits" ref=${list} aria-label=${t("log.list")} start=${first + 1}>
    ${shown.map((hit, offset) => html`<li key=${getLineKey(hit)}><button type="button" class="bare" aria-current=${first + offset === at ? "true" : undefined} onClick=${() => onChoose(first + offset)}>
      <span class="clock">${formatClock(hit.time)}</span><span class="rank rank-${hit.worker % 8}">${hit.worker}</span>
      <span class="text">${markSought(parseLine(collapseReturns(hit.text)), sought).map((piece, index) => html`<span key=${index} class=${piece.style}>${piece.text}</span>`)}</span>
    </button></li>`)}
    ${found.hits.length > shown.length ? html`<li class="quiet">${t("log.list.more", { n: found.hits.length - shown.length })}</li>` : null}
  </ol>`;
}
