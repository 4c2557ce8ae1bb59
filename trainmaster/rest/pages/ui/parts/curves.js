// What a job reported over time, metric by metric, and below what its ranks used. Loaded with its tab.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { ApiProblem, get } from "../lib/api.js";
import { alignSteps, extendSeries, findRange, listRestarts, MOST_POINTS, smooth, summarize, tame } from "../lib/curves.js";
import { t } from "../lib/i18n.js";
import { formatValue } from "../lib/quantity.js";
import { replaceQuery, route } from "../lib/router.js";
import { hasAbility } from "../lib/session.js";
import { formatMoment, formatTick } from "../lib/time.js";
import { Choice, Empty, Given, Loading, Problem } from "./basics.js";
import { Chart, styled } from "./chart.js";
import { UsageCurves } from "./usage_curves.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */
/** @typedef {import("../lib/curves.js").Series} Series */
/** @typedef {{byStep: boolean, isLog: boolean, weight: number}} Look */

const AGAIN_MS = 5_000;
/** Steps beyond cannot be told apart. */
const FURTHEST = 1e15;

/** The component, once all that it needs is loaded. */
export async function loadCurves() {
  await styled;
  return Curves;
}

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, record: RecordDetail | null, kind: string, usage: import("../lib/usage.js").UsageState}} props */
function Curves({ data, live, record, kind, usage }) {
  const path = record ? `history/${encodeURIComponent(record.uid)}` : `jobs/${encodeURIComponent(data.name)}`;
  const source = { path, query: { namespace: data.namespace, kind: record ? "" : kind }, isRecord: Boolean(record) };
  const { series, problem } = useSeries(source, live?.progress?.updated_at ?? "", Boolean(live?.completed_at));
  const { query } = route.value;
  const hasSteps = Boolean(series?.steps.some((step) => step !== null) && series.steps.every((step) => Math.abs(step ?? 0) < FURTHEST));
  const look = { byStep: hasSteps && query.get("x") !== "time", isLog: query.get("log") === "1", weight: readWeight(query.get("smooth")) };
  return html`<section class="curves" aria-label=${t("tab.curves")}>
    <${Problem} problem=${problem} />
    <h2>${t("curves.metrics")}</h2>
    ${series?.metrics.length ? html`<${Tools} look=${look} hasSteps=${hasSteps} />` : null}
    ${series ? html`<${Metrics} series=${series} look=${look} />` : problem ? null : html`<${Loading} />`}
    <${UsageCurves} source=${source} usage=${usage} isLive=${Boolean(live && !live.completed_at)} />
  </section>`;
}

/** @param {string | null} text */
function readWeight(text) {
  const weight = Number(text ?? 0);
  return weight > 0 && weight < 1 ? weight : 0;
}

/**
 * The whole series, and while the job reports what comes. A report is in the archive a moment after it is in the job.
 * @param {{path: string, query: import("../lib/api.js").Query}} source
 * @param {string} stamp when it reported last
 * @param {boolean} isOver
 */
function useSeries(source, stamp, isOver) {
  const [series, setSeries] = useState(/** @type {Series | null} */ (null));
  const [problem, setProblem] = useState(/** @type {ApiProblem | null} */ (null));
  const known = useRef(/** @type {Series | null} */ (null));
  const wanted = useRef(stamp);
  wanted.current = stamp;
  useEffect(() => {
    const controller = new AbortController();
    known.current = null;
    const load = async () => {
      const old = known.current && known.current.times.length < MOST_POINTS ? known.current : null;
      const after = old?.times.at(-1) ?? 0;
      if (old && (document.hidden || Date.parse(wanted.current) / 1000 <= after)) return;
      try {
        const found = await get(`${source.path}/series`, { ...source.query, after }, controller.signal);
        known.current = old ? extendSeries(old, found) : found;
        setSeries(known.current);
        setProblem(null);
      } catch (error) {
        if (controller.signal.aborted) return;
        if (!(error instanceof ApiProblem)) throw error;
        if (!known.current) setProblem(error);
      }
    };
    load();
    const timer = setInterval(load, AGAIN_MS);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, [source.path, isOver]);
  return { series, problem };
}

/** @param {{look: Look, hasSteps: boolean}} props */
function Tools({ look, hasSteps }) {
  return html`<div class="curve-tools">
    ${hasSteps ? html`<${Choice} label=${t("curves.x")} value=${look.byStep ? "step" : "time"} choices=${[["step", t("curves.step")], ["time", t("curves.time")]]}
      onChoose=${(/** @type {string} */ value) => replaceQuery({ x: value === "time" ? "time" : null })} />` : null}
    <label class="check"><input type="checkbox" checked=${look.isLog} onChange=${(/** @type {any} */ event) => replaceQuery({ log: event.target.checked ? "1" : null })} />${t("curves.log")}</label>
    <label class="check">${t("curves.smooth")}<input type="range" min="0" max="0.98" step="0.02" value=${look.weight} onInput=${(/** @type {any} */ event) => replaceQuery({ smooth: event.target.value === "0" ? null : event.target.value })} /></label>
  </div>`;
}

/** @param {{series: Series, look: Look}} props */
function Metrics({ series, look }) {
  if (!series.metrics.length) return html`<${Empty}>${hasAbility("history") ? t("curves.none") : t("curves.absent")}<//>`;
  return html`<div class="cards">${series.metrics.map((metric) => html`<${Metric} key=${metric.name} metric=${metric} series=${series} look=${look} />`)}</div>`;
}

/** @param {{metric: {name: string, values: (number | null)[]}, series: Series, look: Look}} props */
function Metric({ metric, series, look }) {
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  // Moving the pointer must not draw anew.
  const { name, xs, lines, marks } = useMemo(() => draw(metric.values, series, look), [metric.values, series, look.byStep, look.isLog, look.weight]);
  const found = summarize(metric.values);
  const text = found && { first: formatValue(found.first), last: formatValue(found.last), least: formatValue(found.least), most: formatValue(found.most) };
  const label = text ? `${metric.name}: ${t("curves.summary", text)}` : `${metric.name}: ${t("curves.nonumber")}`;
  return html`<article class="card">
    <header><h3><${Given} text=${metric.name} /></h3><span class="read">${readOut(at, xs, lines, look, name) ?? text?.last ?? "–"}</span></header>
    <${Chart} label=${label} xs=${xs} isTime=${!look.byStep} lines=${lines} range=${findRange(lines.map((line) => line.values))} isLog=${look.isLog}
      nameX=${look.byStep ? formatValue : formatTick} nameY=${name} marks=${marks} onPoint=${setAt} />
    ${look.isLog && found && found.least <= 0 ? html`<p class="quiet">${t("curves.nolog")}</p>` : null}
    <${Values} metric=${metric} series=${series} />
  </article>`;
}

/**
 * The lines of one metric: as reported, and over that the smoothed one.
 * @param {(number | null)[]} values
 * @param {Series} series
 * @param {Look} look
 */
function draw(values, series, look) {
  const drawn = tame(values, look.isLog);
  const { attempts, times, steps } = series;
  /** @param {(number | null)[]} one */
  const align = (one) => (look.byStep ? alignSteps(steps, attempts, one) : { xs: times, lines: [one] });
  const raw = align(drawn.values);
  const last = raw.lines.length - 1;
  /** @type {import("./chart.js").DrawnLine[]} */
  const lines = raw.lines.map((line, index) => ({ values: line, colour: "--curve-0", alpha: look.weight ? 0.3 : index === last ? 1 : 0.5 }));
  if (look.weight) {
    const smoothed = align(smooth(drawn.values, attempts, look.weight)).lines;
    lines.push(...smoothed.map((line, index) => ({ values: line, colour: "--curve-0", width: 2, alpha: index === last ? 1 : 0.5 })));
  }
  return { xs: raw.xs, lines, name: drawn.name, marks: listRestarts(look.byStep ? steps : times, attempts) };
}

/**
 * @param {number | null} at
 * @param {number[]} xs
 * @param {import("./chart.js").DrawnLine[]} lines
 * @param {Look} look
 * @param {(drawn: number) => string} name
 */
function readOut(at, xs, lines, look, name) {
  const x = at === null ? undefined : xs[at];
  // Of several attempts the last one counts, and the smoothed line stands behind the reported one.
  const value = at === null ? undefined : lines.map((line) => line.values[at]).filter((one) => one !== null && one !== undefined).at(-1);
  if (x === undefined || value === undefined || value === null) return null;
  return `${look.byStep ? t("curves.at", { step: formatValue(x) }) : formatMoment(x)}: ${name(value)}`;
}

/** @param {{metric: {name: string, values: (number | null)[]}, series: Series}} props */
function Values({ metric, series }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary>${t("curves.values")}</summary>
    ${isOpen ? html`<div class="values" tabindex="0" role="region" aria-label=${`${metric.name}: ${t("curves.values")}`}><table>
      <thead><tr><th scope="col">${t("curves.time")}</th><th scope="col" class="numeric">${t("curves.step")}</th><th scope="col" class="numeric">${t("curves.attempt")}</th><th scope="col" class="numeric">${t("curves.value")}</th></tr></thead>
      <tbody>${series.times.map((time, index) => {
        const value = metric.values[index] ?? null;
        const step = series.steps[index] ?? null;
        return html`<tr key=${time}><td>${formatMoment(time)}</td><td class="numeric">${step === null ? "–" : formatValue(step)}</td><td class="numeric">${series.attempts[index]}</td><td class="numeric">${value === null ? "–" : formatValue(value)}</td></tr>`;
      })}</tbody>
    </table></div>` : null}
  </details>`;
}
