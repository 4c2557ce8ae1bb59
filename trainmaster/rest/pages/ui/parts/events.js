// What Kubernetes events say about a job and what it is made of, the newest first.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { mode } from "../lib/stream.js";
import { Empty, Given, Time } from "./basics.js";

/** @param {{events: import("../lib/job_state.js").JobEvent[]}} props */
export function Events({ events }) {
  if (!events.length) {
    const isAsking = mode.value === "polling" || mode.value === "buffered";
    return html`<${Empty}>${isAsking ? t("events.live") : t("events.none")}<//>`;
  }
  const sorted = [...events].sort((one, other) => (one.time < other.time ? 1 : -1));
  return html`<div class="wide-table" tabindex="0" role="region" aria-label=${t("tab.events")}><table>
    <thead><tr><th scope="col">${t("event.time")}</th><th scope="col">${t("event.reason")}</th><th scope="col">${t("event.message")}</th><th scope="col">${t("event.about")}</th><th scope="col" class="numeric">${t("event.count")}</th></tr></thead>
    <tbody>${sorted.map((event) => html`<tr key=${`${event.reason} ${event.about} ${event.message}`} class=${event.type === "Warning" ? "warning" : ""}>
      <td><${Time} time=${event.time} /></td>
      <td>${event.type === "Warning" ? html`<span class="badge warn">${t("event.warning")}</span> ` : null}${event.reason}</td>
      <td class="text"><${Given} text=${event.message} /></td><td class="pod">${event.about}</td><td class="numeric">${event.count}</td>
    </tr>`)}</tbody>
  </table></div>`;
}
