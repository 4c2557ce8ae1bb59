// What a doctor has found, problems first, each with what to do.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { Command, Sentence } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {{check: string, state: string, seen: string, advice: string, command?: string}} Finding */

const ORDER = ["problem", "note", "ok"];
/** @type {Record<string, string>} */
const ICONS = { problem: "Failed", note: "note", ok: "Complete" };

/** @param {{findings: Finding[]}} props */
export function DoctorFindings({ findings }) {
  const sorted = [...findings].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
  return html`<ul class="list doctor-findings">${sorted.map((finding, index) => html`<li key=${`${finding.check} ${index}`} class=${`finding-${finding.state}`}>
    <div class="line-1"><span class="name"><${Icon} name=${ICONS[finding.state] ?? "note"} /> <b>${finding.check}</b><span class="unseen">, ${t(`finding.${finding.state}`)}</span></span></div>
    <div class="line-2"><${Sentence} text=${finding.seen} /></div>
    ${finding.advice ? html`<div class="advice"><${Sentence} text=${finding.advice} /></div>` : null}
    ${finding.command ? html`<div class="advice"><${Command} command=${finding.command} /></div>` : null}
  </li>`)}</ul>`;
}

/**
 * A fix is a command line, or words where no command helps.
 * @param {string} fix
 * @returns {{advice: string, command?: string}}
 */
export function splitFix(fix) {
  return /^(kubectl|trainmaster|timedatectl) /.test(fix) ? { advice: "", command: fix } : { advice: fix };
}
