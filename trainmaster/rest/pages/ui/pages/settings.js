// What somebody can choose for this browser, what this server is, how it is set up, and what its doctor finds.
import { html, useEffect, useState } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { logOut, mayManageTenants, session } from "../lib/session.js";
import { formatTime, now, zoneName } from "../lib/time.js";
import { Empty, Given, Loading, Problem } from "../parts/basics.js";
import { DoctorFindings } from "../parts/doctor_findings.js";
import { Icon } from "../parts/icons.js";
import { Preferences } from "../parts/preferences.js";

/** @typedef {import("../api.js").SettingAnswer} SettingAnswer */

export function SettingsPage() {
  useEffect(() => {
    document.title = `${t("page.settings")} · Trainmaster`;
  });
  return html`<h1>${t("page.settings")}</h1>
    <div class="columns-2">
      <div>
        <section><h2>${t("settings.browser")}</h2><div class="settings"><${Preferences} /></div></section>
        <${About} />
        ${mayManageTenants() ? html`<${Doctor} />` : null}
      </div>
      <div>${mayManageTenants() ? html`<${ServerSettings} />` : null}</div>
    </div>`;
}

function About() {
  const { me, server } = session.value;
  if (!server || !me) return null;
  /** @type {[string, unknown][]} */
  const facts = [
    [t("settings.version"), `Trainmaster ${server.version}`],
    [t("settings.mode"), `${t(`settings.mode.${server.mode}`)}${server.name ? `, ${server.name}` : ""}`],
    [t("settings.time"), formatTime(new Date(now.value).toISOString())],
    [t("menu.zone"), zoneName.value],
    [t("menu.user"), me.user],
  ];
  return html`<section><h2>${t("settings.about")}</h2>
    <dl class="pairs">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <button type="button" onClick=${logOut}>${t("logout")}</button>
  </section>`;
}

function Doctor() {
  const [round, setRound] = useState(0);
  const { value, problem, isLoading } = useLoaded((signal) => get("doctor", undefined, signal), [round]);
  return html`<section>
    <div class="head"><h2>${t("doctor")}</h2><button type="button" disabled=${isLoading} onClick=${() => setRound(round + 1)}>${t("doctor.again")}</button></div>
    <${Problem} problem=${problem} />
    ${value ? html`<p>${value.healthy ? t("doctor.healthy") : t("doctor.problems")}</p><${DoctorFindings} findings=${value.checks} />` : isLoading ? html`<${Loading} />` : null}
  </section>`;
}

function ServerSettings() {
  const [words, setWords] = useState("");
  const [isChangedOnly, setChangedOnly] = useState(false);
  const { value, problem, isLoading } = useLoaded((signal) => get("settings", undefined, signal), []);
  /** @type {SettingAnswer[]} */
  const all = value?.items ?? [];
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((one) => (!isChangedOnly || one.source !== "default") && wanted.every((word) => `${one.key} ${show(one.value)} ${one.source}`.toLowerCase().includes(word)));
  return html`<section>
    <h2>${t("settings.server")}</h2>
    <p class="quiet">${t("settings.server.text")}</p>
    <form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <span class="search"><${Icon} name="search" /><input type="search" value=${words} placeholder=${t("settings.search")} aria-label=${t("settings.search")} onInput=${(/** @type {any} */ event) => setWords(event.target.value)} /></span>
      <label class="check"><input type="checkbox" checked=${isChangedOnly} onChange=${(/** @type {any} */ event) => setChangedOnly(event.target.checked)} />${t("settings.changed")}</label>
    </form>
    <${Problem} problem=${problem} />
    ${value ? html`<${SettingsTable} settings=${shown} />` : isLoading ? html`<${Loading} />` : null}
  </section>`;
}

/** @param {{settings: SettingAnswer[]}} props */
function SettingsTable({ settings }) {
  if (!settings.length) return html`<${Empty}>${t("settings.none")}<//>`;
  return html`<div class="wide-table plain" tabindex="0" role="region" aria-label=${t("settings.server")}><table>
    <thead><tr><th scope="col">${t("settings.key")}</th><th scope="col">${t("settings.value")}</th><th scope="col">${t("settings.source")}</th></tr></thead>
    <tbody>${settings.map((one) => html`<tr key=${one.key} class=${one.source === "default" ? "quiet" : ""}>
      <td><code>${one.key}</code></td>
      <td class="text"><${Given} text=${show(one.value)} />${one.source === "default" ? null : html`<div class="quiet">${t("settings.default")}: <${Given} text=${show(one.default)} /></div>`}</td>
      <td class="text">${one.source === "default" ? t("settings.default") : html`<${Given} text=${one.source} />`}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** @param {SettingAnswer["value"]} value */
function show(value) {
  const text = Array.isArray(value) ? value.join(", ") : String(value);
  return text || "–";
}
