// Begins the page: logs in, and shows the page of the address.
import { html, render, useEffect, useRef, useState } from "./html.js";
import { t } from "./lib/i18n.js";
import { lazy } from "./lib/lazy.js";
import { route } from "./lib/router.js";
import { loadSession, logIn, refreshServer, session, takeLink } from "./lib/session.js";
import { useShortcuts } from "./lib/shortcuts.js";
import { mode } from "./lib/stream.js";
import { JobPage } from "./pages/job.js";
import { JobsPage } from "./pages/jobs.js";
import { LoginPage, UnreachablePage } from "./pages/login.js";
import { OverviewPage } from "./pages/overview.js";
import { Loading } from "./parts/basics.js";
import { Header, Notices } from "./parts/header.js";
import { Toasts } from "./parts/toasts.js";

const REFRESH_MS = 5 * 60_000;

const Help = lazy(() => import("./parts/help.js").then((module) => module.Help));
/** @type {Record<string, (props: any) => unknown>} */
const PAGES = {
  ...{ "": OverviewPage, jobs: JobsPage, job: JobPage },
  new: lazy(() => import("./pages/new_job.js").then((module) => module.NewJobPage)),
  history: lazy(() => import("./pages/history.js").then((module) => module.HistoryPage)),
  runtimes: lazy(() => import("./pages/runtimes.js").then((module) => module.RuntimesPage)),
  queue: lazy(() => import("./pages/queue.js").then((module) => module.QueuePage)),
  nodes: lazy(() => import("./pages/nodes.js").then((module) => module.NodesPage)),
  runtime: lazy(() => import("./pages/runtime.js").then((module) => module.RuntimePage)),
  tenants: lazy(() => import("./pages/tenants.js").then((module) => module.TenantsPage)),
  settings: lazy(() => import("./pages/settings.js").then((module) => module.SettingsPage)),
};

function Page() {
  const { status } = session.value;
  if (status === "unknown") return html`<main><${Loading} /></main>`;
  if (status === "out") return html`<${LoginPage} />`;
  if (status === "unreachable") return html`<${UnreachablePage} />`;
  return html`<${Inside} />`;
}

function Inside() {
  const [isHelping, setHelping] = useState(false);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const place = route.value.path.join("/");
  const first = useRef(place);
  useShortcuts({ "?": () => setHelping(true) });
  const last = useRef(mode.value);
  useEffect(() => {
    // A server that comes back may be another version.
    if (last.current === "lost" && mode.value === "live") refreshServer();
    last.current = mode.value;
  }, [mode.value]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || refreshServer(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    // Another page is like a new document: read from its beginning.
    if (place !== first.current) main.current?.focus();
    first.current = place;
  }, [place]);
  const name = route.value.path[0] ?? "";
  const Shown = (Object.hasOwn(PAGES, name) && PAGES[name]) || NoPage;
  /** @param {Event} event */
  const skip = (event) => {
    event.preventDefault();
    main.current?.focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>${t("skip")}</a>
    <${Header} />
    <${Notices} />
    <main id="main" ref=${main} tabindex="-1"><${Shown} key=${place} /></main>
    <${Toasts} />
    ${isHelping ? html`<${Help} onClose=${() => setHelping(false)} />` : null}
  `;
}

function NoPage() {
  return html`<h1>${t("nopage")}</h1><p>${t("nopage.text")} <a href="#/">${t("page.overview")}</a>, <a href="#/jobs">${t("page.jobs")}</a></p>`;
}

/** @returns {boolean} whether the address has a link to log in with */
function enter() {
  const link = takeLink();
  if (link) logIn({ link });
  return Boolean(link);
}

// A link may also be opened in a tab that shows the page already.
window.addEventListener("hashchange", enter);
if (!enter()) loadSession();
const root = document.getElementById("page");
if (root) render(html`<${Page} />`, root);
