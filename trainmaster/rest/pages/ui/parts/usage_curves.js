// What the ranks of a job used over time: CPU, memory and GPUs.
import { html, useEffect, useMemo, useState } from "../html.js";
import { get } from "../lib/api.js";
import { findRange, listRestarts } from "../lib/curves.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { formatBytes, formatValue } from "../lib/quantity.js";
import { replaceQuery, route } from "../lib/router.js";
import { isOnCluster } from "../lib/session.js";
import { formatMoment, formatTick } from "../lib/time.js";
import { extendUsage, MEASURES, nameRank, RANGES, sumUpRanks } from "../lib/usage.js";
import { Choice, Empty, Problem } from "./basics.js";
import { Chart } from "./chart.js";

/** @typedef {import("../lib/usage.js").Usage} Usage */
/** @typedef {import("../lib/usage.js").Measure} Measure */
/** @typedef {import("./chart.js").DrawnLine} DrawnLine */

/** More ranks are shown as their least, mean and greatest. */
const MOST_LINES = 8;
const DASHES = [null, null, null, null, [6, 3], [6, 3], [6, 3], [6, 3]];

/** @param {{source: {path: string, query: import("../lib/api.js").Query, isRecord: boolean}, usage: import("../lib/usage.js").UsageState, isLive: boolean}} props */
export function UsageCurves({ source, usage, isLive }) {
  const asked = route.value.query.get("range") ?? "";
  const range = !isLive ? "all" : RANGES.includes(asked) ? asked : "hour";
  const loaded = useLoaded((signal) => get(`${source.path}/usage`, { ...source.query, ...(source.isRecord ? {} : { range }) }, signal), [source.path, range, isLive]);
  const [shown, setShown] = useState(/** @type {Usage | null} */ (null));
  const moment = usage.moment.value;
  useEffect(() => setShown(loaded.value), [loaded.value]);
  useEffect(() => {
    if (moment && isLive) setShown((before) => before && extendUsage(before, moment, range));
  }, [moment]);
  return html`<h2>${t("usage")}</h2>
    <${Problem} problem=${loaded.problem} />
    ${isLive ? html`<div class="curve-tools"><${Choice} label=${t("usage.range")} value=${range} choices=${RANGES.map((one) => [one, t(`usage.range.${one}`)])}
      onChoose=${(/** @type {string} */ value) => replaceQuery({ range: value === "hour" ? null : value })} /></div>` : null}
    ${shown?.times.length ? html`<${Measures} usage=${shown} />` : shown && !loaded.isLoading ? html`<${Empty}>${isOnCluster() ? t("usage.absent") : t("usage.none")}<//>` : null}`;
}

/** @param {{usage: Usage}} props */
function Measures({ usage }) {
  const known = MEASURES.filter((measure) => usage.ranks.some((rank) => rank[measure].length));
  return html`<div class="cards">${known.map((measure) => html`<${MeasureCard} key=${measure} measure=${measure} usage=${usage} />`)}</div>`;
}

/** @param {{measure: Measure, usage: Usage}} props */
function MeasureCard({ measure, usage }) {
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const name = measure === "cpu" ? formatValue : measure === "gpu" ? namePercent : formatBytes;
  const { lines, names } = useMemo(() => build(measure, usage), [measure, usage]);
  const index = at ?? usage.times.length - 1;
  const shown = lines.map((line) => line.values[index] ?? null);
  const label = `${t(`usage.${measure}`)}: ${names.map((one, number) => `${one} ${nameValue(shown[number] ?? null, name)}`).join(", ")}`;
  const values = lines.map((line) => line.values);
  return html`<article class="card">
    <header><h3>${t(`usage.${measure}`)}</h3><span class="read">${at === null ? "" : formatMoment(usage.times[at] ?? 0)}</span></header>
    <${Chart} label=${label} xs=${usage.times} isTime=${true} lines=${lines} range=${findRange(values, 0)} nameX=${formatTick} nameY=${name} isBytes=${name === formatBytes}
      marks=${listRestarts(usage.times, usage.attempts)} onPoint=${setAt} />
    <ul class="legend">${names.map((one, number) => html`<li key=${one}><span class=${`swatch curve-${number % MOST_LINES}`}></span>${one} <b>${nameValue(shown[number] ?? null, name)}</b></li>`)}</ul>
    <${Values} name=${t(`usage.${measure}`)} times=${usage.times} names=${names} lines=${lines} nameY=${name} />
  </article>`;
}

/** @param {number} percent */
function namePercent(percent) {
  return `${Math.round(percent)} %`;
}

/** @param {number | null} value @param {(value: number) => string} name */
function nameValue(value, name) {
  return value === null ? "–" : name(value);
}

/**
 * @param {Measure} measure
 * @param {Usage} usage
 * @returns {{lines: DrawnLine[], names: string[]}}
 */
function build(measure, usage) {
  const ranks = usage.ranks.filter((rank) => rank[measure].length);
  if (ranks.length <= MOST_LINES) {
    const hasJobs = new Set(ranks.map((rank) => rank.job)).size > 1;
    const names = ranks.map((rank) => (hasJobs ? nameRank(rank) : t("log.rank.this", { rank: String(rank.worker) })));
    return { names, lines: ranks.map((rank, number) => drawLine(rank[measure], number)) };
  }
  const sums = sumUpRanks(ranks.map((rank) => rank[measure]));
  const names = [t("usage.most"), t("usage.mean", { n: ranks.length }), t("usage.least")];
  return { names, lines: [sums.most, sums.mean, sums.least].map((values, number) => drawLine(values, number)) };
}

/** @param {(number | null)[]} values @param {number} number @returns {DrawnLine} */
function drawLine(values, number) {
  const dash = DASHES[number % MOST_LINES];
  return { values, colour: `--curve-${number % MOST_LINES}`, ...(dash ? { dash } : {}) };
}

/** @param {{name: string, times: number[], names: string[], lines: DrawnLine[], nameY: (value: number) => string}} props */
function Values({ name, times, names, lines, nameY }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary>${t("curves.values")}</summary>
    ${isOpen ? html`<div class="values" tabindex="0" role="region" aria-label=${`${name}: ${t("curves.values")}`}><table>
      <thead><tr><th scope="col">${t("curves.time")}</th>${names.map((one) => html`<th key=${one} scope="col" class="numeric">${one}</th>`)}</tr></thead>
      <tbody>${times.map((time, index) => html`<tr key=${time}><td>${formatMoment(time)}</td>${lines.map((line, number) => html`<td key=${number} class="numeric">${nameValue(line.values[index] ?? null, nameY)}</td>`)}</tr>`)}</tbody>
    </table></div>` : null}
  </details>`;
}
