// What stands above every page: where one can go, whether the page is live, and who is logged in.
import { html, useEffect, useRef, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { preferences, setPreferences } from "../lib/preferences.js";
import { route } from "../lib/router.js";
import { isReadOnly, logOut, session } from "../lib/session.js";
import { mode } from "../lib/stream.js";
import { Choice } from "./basics.js";
import { Icon } from "./icons.js";

const PAGES = [
  ["", "overview"],
  ["jobs", "jobs"],
  ["new", "new"],
  ["history", "history"],
  ["runtimes", "runtimes"],
];

export function Header() {
  const at = route.value.path[0] === "job" ? "jobs" : (route.value.path[0] ?? "");
  return html`<header class="top">
    <a class="brand" href="#/">Trainmaster</a>
    <nav aria-label=${t("nav")}>
      ${PAGES.map(([path, name]) => html`<a key=${name} href=${`#/${path}`} aria-current=${at === path ? "page" : undefined}>${t(`page.${name}`)}</a>`)}
    </nav>
    <div class="right">
      <${Connection} />
      ${isReadOnly() ? html`<span class="badge" title=${t("readonly.hint")}>${t("readonly")}</span>` : null}
      <${Menu} />
    </div>
  </header>`;
}

/** Words and a shape for how new the page is; nothing where a page needs no stream. */
function Connection() {
  if (mode.value === "off") return null;
  const text = t(`mode.${mode.value}`);
  return html`<span class="connection mode-${mode.value}" role="status" title=${t(`mode.${mode.value}.hint`)}><span class="dot"></span>${text}</span>`;
}

function Menu() {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!isOpen) return undefined;
    /** @param {Event} event */
    const leave = (event) => {
      const isKey = event instanceof KeyboardEvent;
      if (isKey ? event.key === "Escape" : !box.current?.contains(/** @type {Node} */ (event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("keydown", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("keydown", leave);
    };
  }, [isOpen]);
  return html`<div class="menu" ref=${box}>
    <button type="button" class="bare" aria-expanded=${String(isOpen)} aria-controls="menu" onClick=${() => setOpen(!isOpen)} aria-label=${t("menu")}>
      <${Icon} name="settings" />
    </button>
    ${isOpen ? html`<div id="menu" class="panel"><${Settings} /></div>` : null}
  </div>`;
}

function Settings() {
  const { me, server } = session.value;
  const chosen = preferences.value;
  return html`<div class="settings">
    ${me ? html`<p class="who"><span class="quiet">${t("menu.user")}</span><b>${me.tenant ?? me.user}</b></p>` : null}
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
    <label class="check"><input type="checkbox" checked=${chosen.shortcuts} onChange=${(/** @type {any} */ event) => setPreferences({ shortcuts: event.target.checked })} />${t("menu.shortcuts")}</label>
    ${server ? html`<p class="quiet">${server.name ? `${server.name}, ` : ""}Trainmaster ${server.version}</p>` : null}
    ${me ? html`<button type="button" onClick=${logOut}>${t("logout")}</button>` : null}
  </div>`;
}

/** What concerns the whole page: a server that does not answer, a proxy in the way, a newer version. */
export function Notices() {
  const { server } = session.value;
  const begun = useRef(server?.version);
  begun.current ??= server?.version;
  const isOld = Boolean(server && begun.current && server.version !== begun.current);
  return html`
    ${mode.value === "lost" ? html`<p class="notice warn" role="alert">${t("notice.lost")}</p>` : null}
    ${mode.value === "buffered" ? html`<p class="notice" role="status">${t("notice.buffered")}</p>` : null}
    ${isOld ? html`<p class="notice" role="status">${t("notice.version")} <button type="button" onClick=${() => location.reload()}>${t("reload")}</button></p>` : null}
  `;
}
