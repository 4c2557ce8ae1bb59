// The rank that failed first: the error, and the last words of what it printed. That of an earlier attempt is one line
// until somebody opens it, because the job has gone on since.
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

/** @param {{verdict: import("../api.js").Verdict | null, isPast: boolean, hasJobs: boolean}} props */
export function Verdict({ verdict, isPast, hasJobs }) {
  if (!verdict) return null;
  const error = verdict.error ? html`<${Given} text=${verdict.error} />` : t("verdict");
  const details = html`<${Details} verdict=${verdict} hasJobs=${hasJobs} />`;
  if (isPast) {
    return html`<details class="verdict" key="past"><summary><${Icon} name="Failed" /><span>${t("verdict.past", { attempt: String(verdict.attempt) })} <b>${error}</b></span></summary>${details}</details>`;
  }
  return html`<section class="verdict" key="last" aria-label=${t("verdict")}><h2><${Icon} name="Failed" />${error}</h2>${details}</section>`;
}

/** @param {{verdict: import("../api.js").Verdict, hasJobs: boolean}} props */
function Details({ verdict, hasJobs }) {
  const ending = verdict.signal ? t("verdict.signal", { signal: verdict.signal }) : verdict.exit_code === null ? "" : t("verdict.code", { code: String(verdict.exit_code) });
  const rank = verdict.worker === null ? null : String(verdict.worker);
  const log = changeQuery({ tab: null, rank, attempt: String(verdict.attempt), line: null, find: findLastLine(verdict.last_words) });
  return html`<p class="quiet">
      ${verdict.worker === null ? null : html`${nameWorker(verdict, hasJobs)} · `}${t("log.attempt", { attempt: String(verdict.attempt) })}${ending ? ` · ${ending}` : ""} · <${Time} time=${verdict.finished_at} />
    </p>
    ${verdict.last_words ? html`<pre class="tail" tabindex="0">${toVisible(verdict.last_words).trimEnd()}</pre>` : null}
    <p><a href=${log}>${t("verdict.log")}</a></p>`;
}

/**
 * @param {import("../api.js").Verdict} verdict
 * @param {boolean} hasJobs whether the ranks are of several kinds
 */
export function nameWorker(verdict, hasJobs) {
  const rank = String(verdict.worker);
  return hasJobs ? t("verdict.rank", { rank, job: verdict.job ?? "" }) : t("log.rank.this", { rank });
}
