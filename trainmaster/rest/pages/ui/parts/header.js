// What stands above every page: where one can go, whether the page is live, and who is logged in.
import { html, useRef } from "../html.js";
import { t } from "../lib/i18n.js";
import { isNarrow } from "../lib/media.js";
import { usePopover } from "../lib/popover.js";
import { route } from "../lib/router.js";
import { isReadOnly, logOut, mayManageTenants, session } from "../lib/session.js";
import { mode } from "../lib/stream.js";
import { Icon } from "./icons.js";
import { Preferences } from "./preferences.js";

/**
 * @typedef {object} Entry
 * @property {string} path
 * @property {string} name its text is that of `page.NAME`
 * @property {() => boolean} [isFor] whether the caller has anything to see there
 */

/** Tenants of a home may not list its nodes. */
const maySeeNodes = () => !(session.value.me?.tenant && session.value.server?.mode === "home");

/** @type {Entry[]} */
const PAGES = [
  { path: "", name: "overview" },
  { path: "jobs", name: "jobs" },
  { path: "new", name: "new", isFor: () => !isReadOnly() },
  { path: "queue", name: "queue" },
  { path: "nodes", name: "nodes", isFor: maySeeNodes },
  { path: "runtimes", name: "runtimes" },
  { path: "history", name: "history" },
  { path: "tenants", name: "tenants", isFor: mayManageTenants },
  { path: "settings", name: "settings", isFor: mayManageTenants },
];
/** Pages about one of those that another page lists. */
/** @type {Record<string, string>} */
const BELOW = { job: "jobs", runtime: "runtimes" };

export function Header() {
  const path = route.value.path[0] ?? "";
  const at = BELOW[path] ?? path;
  const pages = PAGES.filter((page) => page.isFor?.() ?? true);
  return html`<header class="top">
    <a class="brand" href="#/">Trainmaster</a>
    ${isNarrow.value ? html`<${NarrowPages} pages=${pages} at=${at} />` : html`<nav aria-label=${t("nav")}><${Links} pages=${pages} at=${at} /></nav>`}
    <div class="right">
      <${Connection} />
      ${isReadOnly() ? html`<span class="badge" title=${t("readonly.hint")}>${t("readonly")}</span>` : null}
      <${Menu} />
    </div>
  </header>`;
}

/** @param {{pages: Entry[], at: string}} props */
function Links({ pages, at }) {
  return pages.map(({ path, name }) => html`<a key=${name} href=${`#/${path}`} aria-current=${at === path ? "page" : undefined}>${t(`page.${name}`)}</a>`);
}

/**
 * One button with the name of the page; the others open below it.
 * @param {{pages: Entry[], at: string}} props
 */
function NarrowPages({ pages, at }) {
  const { isOpen, setOpen, box } = usePopover();
  const shown = pages.find((page) => page.path === at);
  return html`<nav class="menu" aria-label=${t("nav")} ref=${box}>
    <button type="button" aria-expanded=${String(isOpen)} aria-controls="pages" onClick=${() => setOpen(!isOpen)}>
      <${Icon} name="menu" /> ${shown ? t(`page.${shown.name}`) : t("nav")}
    </button>
    ${isOpen ? html`<div id="pages" class="panel pages" onClick=${() => setOpen(false)}><${Links} pages=${pages} at=${at} /></div>` : null}
  </nav>`;
}

/** Words and a shape for how new the page is; nothing where a page needs no stream. */
function Connection() {
  if (mode.value === "off") return null;
  const text = t(`mode.${mode.value}`);
  return html`<span class="connection mode-${mode.value}" role="status" title=${t(`mode.${mode.value}.hint`)}><span class="dot"></span>${text}</span>`;
}

function Menu() {
  const { isOpen, setOpen, box } = usePopover();
  return html`<div class="menu" ref=${box}>
    <button type="button" class="bare" aria-expanded=${String(isOpen)} aria-controls="menu" onClick=${() => setOpen(!isOpen)} aria-label=${t("menu")}>
      <${Icon} name="settings" />
    </button>
    ${isOpen ? html`<div id="menu" class="panel"><${Settings} /></div>` : null}
  </div>`;
}

function Settings() {
  const { me, server } = session.value;
  return html`<div class="settings">
    ${me ? html`<p class="who"><span class="quiet">${t("menu.user")}</span><b>${me.tenant ?? me.user}</b></p>` : null}
    <${Preferences} />
    ${server ? html`<p class="quiet">${server.name ? `${server.name}, ` : ""}Trainmaster ${server.version}</p>` : null}
    <p><a href="#/settings">${t("menu.all")}</a></p>
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
