// What the server says about a job that does not exist yet: mistakes at their lines and fields, and warnings.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { Given, Problem } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../api.js").CheckAnswer} CheckAnswer */

/**
 * @param {CheckAnswer} answer
 * @returns {import("./text_editor.js").Mark[]}
 */
export function listMarks(answer) {
  return answer.items.flatMap((item) => item.errors.map((one) => ({ line: Math.max(1, one.line), text: one.text, kind: /** @type {const} */ ("error") })));
}

/**
 * @param {object} props
 * @param {import("../lib/checks.js").Check} props.check
 * @param {((target: {line: number, column: number}) => void) | null} props.onGo null: there are no lines to go to
 */
export function Findings({ check, onGo }) {
  const { answer, problem, isChecking } = check;
  const errors = answer?.items.flatMap((item) => item.errors) ?? [];
  const warnings = answer?.items.flatMap((item) => item.warnings) ?? [];
  const count = errors.length + (answer?.problems.length ?? 0);
  return html`<section class="findings" id="findings" aria-live="polite" aria-label=${t("check")} aria-busy=${String(isChecking)}>
    <h2>${t("check")}${isChecking ? html` <span class="quiet">${t("check.running")}</span>` : null}</h2>
    <${Problem} problem=${problem} />
    ${answer?.ok ? html`<p class="good"><${Icon} name="Complete" /> ${t("check.good")}</p>` : null}
    ${!answer && !problem && !isChecking ? html`<p class="quiet">${t("check.begin")}</p>` : null}
    ${count ? html`<p class="bad"><${Icon} name="Failed" /> ${t("check.errors", { n: count })}</p>` : null}
    <ul>
      ${(answer?.problems ?? []).map((one) => html`<li key=${`${one.pointer} ${one.detail}`}>${one.pointer ? html`<code>${one.pointer.slice(1)}</code> ` : null}<${Given} text=${one.detail} /></li>`)}
      ${errors.map((one) => html`<li key=${`${one.line} ${one.text}`}>
        ${onGo ? html`<button type="button" class="link" onClick=${() => onGo({ line: one.line, column: one.column ?? 1 })}>${t("check.line", { line: String(one.line) })}</button> ` : null}
        <${Given} text=${one.path && !one.text.includes(one.path) ? `${one.path}: ${one.text}` : one.text} /></li>`)}
      ${warnings.map((text) => html`<li key=${text}><span class="badge warn">${t("event.warning")}</span> <${Given} text=${text} /></li>`)}
    </ul>
  </section>`;
}
