// The logs of a job: which ranks and attempt, the search over all lines, ways to any part, and the lines.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { findLine, getLineKey } from "../lib/log_run.js";
import { LogSearch } from "../lib/log_search.js";
import { isNarrow } from "../lib/media.js";
import { preferences, setPreferences } from "../lib/preferences.js";
import { replaceQuery, route } from "../lib/router.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { zoneName } from "../lib/time.js";
import { showProblem } from "../lib/toasts.js";
import { Empty, Loading, Problem } from "./basics.js";
import { LogFind, LogHits } from "./log_find.js";
import { LogFiles, LogGo } from "./log_go.js";
import { LogList } from "./log_list.js";

/** @typedef {import("../lib/log_lines.js").LogLines} LogLines */
/** @typedef {import("./log_list.js").Jump} Jump */

/** A search begins when typing pauses. */
const PAUSE_MS = 250;

/**
 * @param {object} props
 * @param {LogLines} props.lines
 * @param {import("../lib/log_lines.js").Source} props.source where the server has the lines
 * @param {number[]} props.ranks
 * @param {number} props.attempts how many there have been
 * @param {string} props.fileName for saving
 */
export function LogView({ lines, source, ranks, attempts, fileName }) {
  lines.source = source;
  const { query } = route.value;
  const [jump, setJump] = useState(/** @type {Jump | null} */ (null));
  const [isListed, setListed] = useState(false);
  const top = useRef(0);
  const target = query.get("line") ?? "";
  // Which lines there are is read here, so that this component is drawn again with every change.
  void lines.version.value;
  /** @param {string} at */
  const go = async (at) => {
    try {
      if (at === "end") {
        lines.goToEnd();
        setJump({ index: -1, isEnd: true });
      } else {
        const index = await lines.jump(at);
        if (index >= 0) setJump({ index, isEnd: false });
      }
    } catch (error) {
      showProblem(error);
    }
  };
  const { found, at, goToHit } = useSearch(lines, source, go);
  /** @param {number} step */
  const step = (step) => {
    const count = found.hits.length;
    if (count) goToHit(at < 0 ? (step > 0 ? 0 : count - 1) : (at + step + count) % count);
  };
  const choose = useTarget(lines, target, go);
  /** @param {number} step goes from the line of the address, or from the last one, to another line */
  const move = (step) => {
    const from = target ? findLine(lines.entries, target) : lines.entries.length;
    let index = from + step;
    while (lines.entries[index] && lines.entries[index]?.kind !== "line") index += step;
    const entry = lines.entries[index];
    if (!entry) return;
    choose(getLineKey(entry));
    go(getLineKey(entry));
  };
  useShortcuts({ j: () => move(1), k: () => move(-1) });
  const { wrap, times } = preferences.value;
  const hit = found.hits[at];
  const sought = found.isPattern ? "" : found.sought.toLowerCase();
  const shown = { wrap, times, sought, current: hit ? getLineKey(hit) : "", target };
  return html`<section class="logs" aria-label=${t("tab.logs")}>
    <div class="log-tools">
      <${LogFind} found=${found} at=${at} isListed=${isListed} onGo=${step} onList=${() => setListed(!isListed)} />
      <${Selects} ranks=${ranks} attempts=${attempts} />
      <${LogGo} lines=${lines} top=${top} onGo=${go} />
      <${Toggle} isOn=${wrap} text=${t("log.wrap")} onClick=${() => setPreferences({ wrap: !wrap })} />
      ${isNarrow.value ? null : html`<${Toggle} isOn=${times} text=${`${t("log.times")} (${zoneName.value})`} onClick=${() => setPreferences({ times: !times })} />`}
      <${LogFiles} lines=${lines} fileName=${fileName} />
    </div>
    <${Problem} problem=${lines.problem.value} />
    <${LogHits} found=${found} at=${at} isListed=${isListed} onChoose=${goToHit} />
    <${Body} lines=${lines} hasRanks=${ranks.length > 0} shown=${shown} jump=${jump} top=${top} onChoose=${choose} />
  </section>`;
}

/**
 * @param {object} props
 * @param {LogLines} props.lines
 * @param {boolean} props.hasRanks without any there is nothing to wait for
 * @param {import("./log_list.js").Shown} props.shown
 * @param {Jump | null} props.jump
 * @param {{current: number}} props.top
 * @param {(key: string) => void} props.onChoose
 */
function Body({ lines, hasRanks, shown, jump, top, onChoose }) {
  if (lines.entries.length) {
    return html`<${LogList} lines=${lines} shown=${shown} jump=${jump} top=${top} onChoose=${onChoose} />
      ${lines.end.value ? html`<p class="quiet log-end">${t("log.end")}</p>` : null}`;
  }
  if (hasRanks && !lines.isLoaded.value && !lines.end.value && !lines.problem.value) return html`<${Loading} />`;
  // What could not be read may well have been printed.
  return lines.problem.value ? null : html`<${Empty}>${t("log.none")}<//>`;
}

/** @param {{isOn: boolean, text: string, onClick: () => void}} props */
function Toggle({ isOn, text, onClick }) {
  return html`<button type="button" aria-pressed=${String(isOn)} onClick=${onClick}>${text}</button>`;
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
 * The search of the address, and the hit that is shown.
 * @param {LogLines} lines
 * @param {import("../lib/log_lines.js").Source} source
 * @param {(at: string) => void} go
 */
function useSearch(lines, source, go) {
  const { query } = route.value;
  const sought = query.get("find") ?? "";
  const isPattern = query.has("regex");
  const search = useMemo(() => new LogSearch(), []);
  const [at, setAt] = useState(-1);
  lines.onLines = (batch) => search.take(batch);
  /** @param {number} index */
  const goToHit = (index) => {
    const hit = search.found.value.hits[index];
    if (!hit) return;
    setAt(index);
    go(getLineKey(hit));
  };
  useEffect(() => {
    const controller = new AbortController();
    // Whoever types looks at the words; whoever follows a link wants to see what it leads to.
    const isTyping = document.activeElement instanceof HTMLInputElement;
    setAt(-1);
    const begin = async () => {
      await search.run(source, sought, isPattern, controller.signal);
      const isLink = !isTyping && !route.value.query.has("line");
      if (isLink && !controller.signal.aborted) goToHit(search.found.value.hits.length - 1);
    };
    const timer = setTimeout(begin, isTyping && sought ? PAUSE_MS : 0);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [sought, isPattern, JSON.stringify(source)]);
  return { found: search.found.value, at, goToHit };
}

/**
 * Goes to the line of the address, once.
 * @param {LogLines} lines
 * @param {string} target
 * @param {(at: string) => void} go
 */
function useTarget(lines, target, go) {
  const reached = useRef("");
  useEffect(() => {
    if (!target || reached.current === target || !lines.isLoaded.value) return;
    reached.current = target;
    go(target);
  }, [target, lines.isLoaded.value]);
  // Whoever chooses a line sees it already.
  return (/** @type {string} */ key) => {
    reached.current = key;
    replaceQuery({ line: key });
  };
}
