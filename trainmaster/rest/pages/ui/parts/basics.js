// Small pieces that every page uses: states, times, problems, copying.
import { html, useEffect, useState } from "../html.js";
import { findText, t } from "../lib/i18n.js";
import { toVisible } from "../lib/log_text.js";
import { formatSpan, formatTime, now, parseTime } from "../lib/time.js";
import { describeProblem } from "../lib/toasts.js";
import { Icon } from "./icons.js";

/** @param {{state: string, small?: boolean}} props */
export function State({ state }) {
  return html`<span class="state state-${state}"><${Icon} name=${state} /><span>${findText(`state.${state}`) ?? state}</span></span>`;
}

/**
 * A reason of docs/states.md in the person's language, with the word that programs use.
 * @param {{reason: string | null | undefined}} props
 */
export function Reason({ reason }) {
  if (!reason) return null;
  const text = findText(`reason.${reason}`);
  return text ? html`<span title=${reason}>${text}</span>` : html`<span>${reason}</span>`;
}

/** @param {{text: string | null | undefined}} props text of a job, whatever it contains */
export function Given({ text }) {
  return html`<bdi>${toVisible(text ?? "")}</bdi>`;
}

/**
 * A sentence of the server, in which `commands` stand in backquotes.
 * @param {{text: string}} props
 */
export function Sentence({ text }) {
  const parts = toVisible(text).split("`");
  // An odd quote is only a quote.
  if (parts.length % 2 === 0) return html`<bdi>${toVisible(text)}</bdi>`;
  return html`<bdi>${parts.map((part, index) => (index % 2 ? html`<code key=${index}>${part}</code>` : part))}</bdi>`;
}

/** @param {{time: string | null | undefined}} props */
export function Time({ time }) {
  return time ? html`<time datetime=${time}>${formatTime(time)}</time>` : html`<span class="quiet">–</span>`;
}

/**
 * How long ago; the exact time is its tooltip.
 * @param {{time: string | null | undefined}} props
 */
export function Age({ time }) {
  const begin = parseTime(time);
  if (begin === null) return html`<span class="quiet">–</span>`;
  return html`<time datetime=${time} title=${formatTime(time)}>${formatSpan((now.value - begin) / 1000)}</time>`;
}

/**
 * From a beginning to an end, or until now.
 * @param {{from: string | null | undefined, to: string | null | undefined}} props
 */
export function Span({ from, to }) {
  const begin = parseTime(from);
  if (begin === null) return html`<span class="quiet">–</span>`;
  return html`<span>${formatSpan(((parseTime(to) ?? now.value) - begin) / 1000)}</span>`;
}

/** @param {{percent: number | null | undefined, label: string, isWide?: boolean}} props */
export function Progress({ percent, label, isWide = false }) {
  if (percent === null || percent === undefined) return html`<span class="quiet">–</span>`;
  const shown = Math.max(0, Math.min(100, percent));
  return html`<span class=${isWide ? "progress wide" : "progress"}>
    <progress max="100" value=${shown} aria-label=${label}></progress><span>${shown} %</span>
  </span>`;
}

/** @param {{problem: {status: number, message?: string, detail?: string, hint?: string} | null}} props */
export function Problem({ problem }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert">
    <${Icon} name="Failed" />
    <div><${Sentence} text=${describeProblem(problem)} />${problem.hint ? html`<div class="hint"><${Sentence} text=${problem.hint} /></div>` : null}</div>
  </div>`;
}

/** @param {{text: string, label?: string}} props */
export function Copy({ text, label }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [isCopied]);
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  const name = label ?? t("copy");
  return html`<button type="button" class="bare" onClick=${copy} title=${name}>
    <${Icon} name=${isCopied ? "Complete" : "copy"} /><span class="unseen">${isCopied ? t("copied") : name}</span>
  </button>`;
}

/** @param {{command: string}} props */
export function Command({ command }) {
  return html`<span class="command"><code>${toVisible(command)}</code><${Copy} text=${command} /></span>`;
}

/** @param {{children?: unknown}} props */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** Waiting for the first answer: nothing for a moment, so that a quick one does not flicker. */
export function Loading() {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return html`<p class="empty" aria-live="polite">${isShown ? t("loading") : ""}</p>`;
}

/**
 * One of a few, as buttons of which one is pressed.
 * @param {{label: string, value: string, choices: [string, string][], onChoose: (value: string) => void}} props
 */
export function Choice({ label, value, choices, onChoose }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${choices.map(
      ([name, text]) =>
        html`<button key=${name} type="button" aria-pressed=${String(name === value)} onClick=${() => onChoose(name)}>${text}</button>`,
    )}
  </div>`;
}
