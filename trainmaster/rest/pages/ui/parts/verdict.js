// The rank that failed first: the error, and the last words of what it printed.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { toVisible } from "../lib/log_text.js";
import { changeQuery } from "../lib/router.js";
import { Given, Time } from "./basics.js";
import { Icon } from "./icons.js";

const MOST_SOUGHT = 80;

/** @param {string | null} words @returns {string} what the log is searched for: usually the error */
function findLastLine(words) {
  return toVisible(words ?? "").trimEnd().split("\n").at(-1)?.trim().slice(0, MOST_SOUGHT) ?? "";
}

/** @param {{verdict: import("../api.js").Verdict | null}} props */
export function Verdict({ verdict }) {
  if (!verdict) return null;
  const ending = verdict.signal ? t("verdict.signal", { signal: verdict.signal }) : verdict.exit_code === null ? "" : t("verdict.code", { code: String(verdict.exit_code) });
  const rank = verdict.worker === null ? null : String(verdict.worker);
  const log = changeQuery({ tab: null, rank, attempt: String(verdict.attempt), line: null, find: findLastLine(verdict.last_words) });
  return html`<section class="verdict" aria-label=${t("verdict")}>
    <h2><${Icon} name="Failed" />${verdict.error ? html`<${Given} text=${verdict.error} />` : t("verdict")}</h2>
    <p class="quiet">
      ${verdict.worker === null ? null : html`${t("verdict.rank", { rank: String(verdict.worker), job: verdict.job ?? "" })} · `}${t("log.attempt", { attempt: String(verdict.attempt) })}${ending ? ` · ${ending}` : ""} · <${Time} time=${verdict.finished_at} />
    </p>
    ${verdict.last_words ? html`<pre tabindex="0">${toVisible(verdict.last_words)}</pre>` : null}
    <p><a href=${log}>${t("verdict.log")}</a></p>
  </section>`;
}
