// One chart, drawn by uPlot, which is loaded with the first of them. The page's theme gives the colours.
import { html, useEffect, useRef } from "../html.js";
import { listPowers } from "../lib/curves.js";
import { prefersDark } from "../lib/media.js";
import { preferences } from "../lib/preferences.js";
import uPlot from "../vendor/uplot.js";

/**
 * @typedef {object} DrawnLine
 * @property {import("../lib/curves.js").Line} values one for each x
 * @property {string} colour a variable of the style sheet
 * @property {number} [alpha]
 * @property {number} [width]
 * @property {number[]} [dash]
 * @property {boolean} [spansGaps]
 */
/**
 * @typedef {object} ChartProps
 * @property {string} label what is seen, for those who do not see it
 * @property {number[]} xs
 * @property {boolean} isTime
 * @property {DrawnLine[]} lines
 * @property {[number, number]} range
 * @property {(x: number, span: number) => string} nameX
 * @property {(y: number) => string} nameY
 * @property {boolean} [isLog] the values are powers of ten
 * @property {boolean} [isBytes]
 * @property {import("../lib/curves.js").Restart[]} marks
 * @property {(index: number | null) => void} onPoint where the pointer is
 */

const HEIGHT = 156;
/** Steps of an axis of bytes. */
const TWOS = Array.from({ length: 60 }, (_, index) => 2 ** index);

/** The sheet of uPlot is ready. */
export const styled = new Promise((done) => {
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = new URL("../vendor/uplot.css", import.meta.url).href;
  sheet.onload = sheet.onerror = () => done(undefined);
  document.head.append(sheet);
});

/** @param {ChartProps} props */
export function Chart(props) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const latest = useRef(props);
  latest.current = props;
  // What cannot be changed in a chart that is there.
  const form = JSON.stringify([
    preferences.value.theme,
    prefersDark.value,
    props.isTime,
    props.isLog,
    props.isBytes,
    props.lines.map(({ colour, alpha, width, dash, spansGaps }) => [colour, alpha, width, dash, spansGaps]),
  ]);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const made = build(element, latest);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      const width = Math.floor(element.clientWidth);
      if (width && width !== made.width) made.setSize({ width, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current = null;
      made.destroy();
    };
  }, [form]);
  useEffect(() => {
    plot.current?.setData(readData(props));
  }, [props.xs, ...props.lines.map((line) => line.values), form]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${props.label}></div>`;
}

/** @param {ChartProps} props @returns {uPlot.AlignedData} */
function readData({ xs, lines }) {
  return [xs, ...lines.map((line) => line.values)];
}

/**
 * @param {HTMLElement} element
 * @param {{current: ChartProps}} latest
 */
function build(element, latest) {
  const { isTime, isLog, isBytes, lines } = latest.current;
  const [soft, rule, strong] = readColours(element, ["--soft", "--line", "--strong-line"]);
  const colours = readColours(element, lines.map((line) => line.colour));
  const axis = { stroke: soft ?? "", font: "11px system-ui, sans-serif", grid: { stroke: rule ?? "", width: 1 }, ticks: { show: false } };
  /** @type {uPlot.Options} */
  const options = {
    width: Math.floor(element.clientWidth) || 300,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "curves" }, drag: { x: false, y: false }, points: { size: 5 } },
    scales: {
      x: { time: isTime, range: (_, least, most) => (least === most ? [least - 1, most + 1] : [least, most]) },
      y: { range: () => latest.current.range },
    },
    axes: [
      { ...axis, size: 26, space: 64, values: (self, splits) => nameSplits(self, splits, latest.current.nameX) },
      {
        ...axis,
        size: (_, values) => Math.max(38, 12 + 6.2 * Math.max(0, ...(values ?? []).map((text) => text.length))),
        space: 28,
        ...(isLog ? { splits: (/** @type {uPlot} */ _, /** @type {number} */ __, /** @type {number} */ from, /** @type {number} */ to) => listPowers(from, to) } : {}),
        ...(isBytes ? { incrs: TWOS } : {}),
        values: (_, splits) => splits.map((y) => latest.current.nameY(y)),
      },
    ],
    series: [
      {},
      ...lines.map((line, index) => ({
        stroke: colours[index] ?? "",
        width: line.width ?? 1.5,
        alpha: line.alpha ?? 1,
        spanGaps: line.spansGaps ?? false,
        points: { show: latest.current.xs.length < 2 },
        ...(line.dash ? { dash: line.dash } : {}),
      })),
    ],
    hooks: {
      draw: [(self) => drawMarks(self, latest.current.marks, strong ?? "", soft ?? "")],
      setCursor: [(self) => latest.current.onPoint(self.cursor.idx ?? null)],
    },
  };
  return new uPlot(options, readData(latest.current), element);
}

/**
 * @param {uPlot} self
 * @param {number[]} splits
 * @param {ChartProps["nameX"]} name
 */
function nameSplits(self, splits, name) {
  const { min = 0, max = 0 } = self.scales.x ?? {};
  return splits.map((x) => name(x, (max ?? 0) - (min ?? 0)));
}

/**
 * Colours of the style sheet as the canvas takes them: variables may depend on the theme.
 * @param {HTMLElement} element
 * @param {string[]} names
 */
function readColours(element, names) {
  const probe = document.createElement("span");
  element.append(probe);
  const found = names.map((name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return found;
}

/**
 * A dashed line with its number where an attempt begins.
 * @param {uPlot} self
 * @param {import("../lib/curves.js").Restart[]} marks
 * @param {string} rule
 * @param {string} ink
 */
function drawMarks(self, marks, rule, ink) {
  const { ctx, bbox } = self;
  const { min, max } = self.scales.x ?? {};
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = rule;
  ctx.fillStyle = ink;
  ctx.lineWidth = ratio;
  // The axes have left their own.
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.font = `${10 * ratio}px system-ui, sans-serif`;
  let free = -Infinity;
  for (const { x, attempt } of marks) {
    if (x < (min ?? 0) || x > (max ?? 0)) continue;
    const left = Math.round(self.valToPos(x, "x", true));
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    if (left < free) continue;
    const text = `↻${attempt}`;
    const width = ctx.measureText(text).width;
    const isAtEnd = left + width > bbox.left + bbox.width;
    ctx.fillText(text, isAtEnd ? left - width - 2 * ratio : left + 2 * ratio, bbox.top + 9 * ratio);
    free = left + width + 6 * ratio;
  }
  ctx.restore();
}
