// What a person can choose for this browser: language, theme, time zone, single keys.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { preferences, setPreferences } from "../lib/preferences.js";
import { Choice } from "./basics.js";

export function Preferences() {
  const chosen = preferences.value;
  return html`
    <label>${t("menu.language")}
      <select value=${chosen.language} onChange=${(/** @type {any} */ event) => setPreferences({ language: event.target.value })}>
        <option value="">${t("menu.language.browser")}</option><option value="en" lang="en">English</option><option value="ko" lang="ko">한국어</option>
      </select>
    </label>
    <div class="row"><span>${t("menu.theme")}</span><${Choice} label=${t("menu.theme")} value=${chosen.theme}
      choices=${[["system", t("menu.theme.system")], ["light", t("menu.theme.light")], ["dark", t("menu.theme.dark")]]}
      onChoose=${(/** @type {any} */ theme) => setPreferences({ theme })} /></div>
    <div class="row"><span>${t("menu.zone")}</span><${Choice} label=${t("menu.zone")} value=${chosen.zone}
      choices=${[["local", t("menu.zone.local")], ["utc", "UTC"]]}
      onChoose=${(/** @type {any} */ zone) => setPreferences({ zone })} /></div>
    <label class="check"><input type="checkbox" checked=${chosen.shortcuts} onChange=${(/** @type {any} */ event) => setPreferences({ shortcuts: event.target.checked })} />${t("menu.shortcuts")}</label>`;
}
