// What administrators do with a tenant, each with its plan before, and what lets the tenant in, shown once, after.
import { html, useState } from "../html.js";
import { ApiProblem } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { hasAbility, isOnCluster } from "../lib/session.js";
import { addTenant, changeTenant, compareLimits, deleteTenant, disableTenant, enableTenant, LIMITS, makeLoginLink, mayShowTokens, readLimits, rotateToken } from "../lib/tenants.js";
import { formatTime } from "../lib/time.js";
import { Copy, Problem, Sentence } from "./basics.js";
import { Dialog } from "./dialog.js";

/** @typedef {import("../lib/tenants.js").Tenant} Tenant */
/** @typedef {import("../lib/tenants.js").Pass} Pass */

/** Where a new tenant has no limit unless one is given. */
/** @type {Record<string, string>} */
const DEFAULTS = { jobs: "100", pods: "200", pids: "4096", objects: "1000", object_bytes: "64Mi" };
const FIRST = 5;

/**
 * Runs what a dialog does, once at a time.
 * @param {() => Promise<void>} act
 */
function useAction(act) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ApiProblem | null} */ (null));
  const start = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await act();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, problem, start };
}

/**
 * @param {object} props
 * @param {string} props.title
 * @param {string} props.confirm
 * @param {boolean} [props.isDangerous]
 * @param {boolean} [props.isReady] whether it may be confirmed
 * @param {() => Promise<void>} props.act
 * @param {() => void} props.onClose
 * @param {unknown} [props.children]
 */
function ActionDialog({ title, confirm, isDangerous = false, isReady = true, act, onClose, children }) {
  const { isBusy, problem, start } = useAction(act);
  /** @param {Event} event */
  const send = (event) => {
    event.preventDefault();
    if (isReady && !isBusy) start();
  };
  const actions = html`<button type="button" onClick=${onClose}>${t("cancel")}</button>
    <button type="submit" form="tenant-action" class=${isDangerous ? "danger" : "main"} disabled=${isBusy || !isReady}>${confirm}</button>`;
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${actions}>
    <form id="tenant-action" class="fields" onSubmit=${send}><${Problem} problem=${problem} />${children}</form>
  <//>`;
}

/** @param {{pass: Pass, onClose: () => void}} props */
function PassDialog({ pass, onClose }) {
  const actions = html`<button type="button" class="main" onClick=${onClose}>${t("close")}</button>`;
  const isLink = pass.kind === "link";
  return html`<${Dialog} title=${t(isLink ? "tenant.link.title" : "tenant.token.title", { name: pass.tenant })} onClose=${onClose} actions=${actions}>
    <p>${t(isLink ? "tenant.link.text" : "tenant.token.text", { time: formatTime(pass.expires) })}</p>
    <p class="pass"><code>${pass.text}</code><${Copy} text=${pass.text} /></p>
  <//>`;
}

/** @param {{limits: Record<string, string>, onChange: (limits: Record<string, string>) => void}} props */
function LimitFields({ limits, onChange }) {
  /** @param {string} name */
  const field = (name) => html`<label key=${name}>${t(`limit.${name}`)}
    <input value=${limits[name] ?? ""} autocomplete="off" spellcheck=${false} placeholder=${t("limit.none")} onInput=${(/** @type {any} */ event) => onChange({ ...limits, [name]: event.target.value })} /></label>`;
  return html`<fieldset><legend>${t("tenant.limits")}</legend>
    <p class="quiet">${t("tenant.limits.text")}</p>
    <div class="grid">${LIMITS.slice(0, FIRST).map(field)}</div>
    <details><summary>${t("tenant.limits.more")}</summary><div class="grid">${LIMITS.slice(FIRST).map(field)}</div></details>
  </fieldset>`;
}

/** @param {{onClose: (isDone: boolean) => void}} props */
export function AddDialog({ onClose }) {
  const [name, setName] = useState("");
  const [limits, setLimits] = useState(DEFAULTS);
  const [isOpenly, setOpenly] = useState(false);
  const [pass, setPass] = useState(/** @type {Pass | null} */ (null));
  if (pass) return html`<${PassDialog} pass=${pass} onClose=${() => onClose(true)} />`;
  const act = async () => {
    const given = Object.fromEntries(Object.entries(compareLimits(limits, DEFAULTS)).filter(([, value]) => value !== null));
    setPass(await addTenant(name.trim(), given, isOpenly));
  };
  return html`<${ActionDialog} title=${t("tenant.add")} confirm=${t("tenant.add")} isReady=${name.trim() !== ""} act=${act} onClose=${() => onClose(false)}>
    <p class="quiet"><${Sentence} text=${mayShowTokens ? t("tenant.add.text") : t("tenant.add.plain")} /></p>
    <label>${t("column.name")}<input value=${name} required autocomplete="off" spellcheck=${false} maxlength="40" onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>
    <${LimitFields} limits=${limits} onChange=${setLimits} />
    ${isOnCluster() ? null : html`<label class="check"><input type="checkbox" checked=${isOpenly} onChange=${(/** @type {any} */ event) => setOpenly(event.target.checked)} />${t("tenant.walls")}</label>`}
  <//>`;
}

/** @param {{tenant: Tenant, onClose: (isDone: boolean) => void}} props */
export function LimitsDialog({ tenant, onClose }) {
  const before = readLimits(tenant);
  const [limits, setLimits] = useState(before);
  const changes = compareLimits(limits, before);
  const act = async () => {
    await changeTenant(tenant.tenant, changes);
    onClose(true);
  };
  return html`<${ActionDialog} title=${t("tenant.change.title", { name: tenant.tenant })} confirm=${t("tenant.change")} isReady=${Object.keys(changes).length > 0} act=${act} onClose=${() => onClose(false)}>
    <p class="quiet">${t("tenant.change.text")}</p>
    <${LimitFields} limits=${limits} onChange=${setLimits} />
  <//>`;
}

/**
 * A new way in for the tenant: after the plan, what lets it in.
 * @param {{tenant: Tenant, way: "link" | "rotate" | "enable", onClose: (isDone: boolean) => void}} props
 */
export function PassRequest({ tenant, way, onClose }) {
  const [pass, setPass] = useState(/** @type {Pass | null} */ (null));
  if (pass) return html`<${PassDialog} pass=${pass} onClose=${() => onClose(true)} />`;
  const name = tenant.tenant;
  const act = async () => setPass(await { link: makeLoginLink, rotate: rotateToken, enable: enableTenant }[way](name));
  return html`<${ActionDialog} title=${t(`tenant.${way}.ask`, { name })} confirm=${t(`tenant.${way}`)} act=${act} onClose=${() => onClose(false)}>
    <p>${t(`tenant.${way}.plan`)}</p>
  <//>`;
}

/** @param {{tenant: Tenant, onClose: (isDone: boolean) => void}} props */
export function DisableDialog({ tenant, onClose }) {
  const act = async () => {
    await disableTenant(tenant.tenant);
    onClose(true);
  };
  return html`<${ActionDialog} title=${t("tenant.disable.ask", { name: tenant.tenant })} confirm=${t("tenant.disable")} isDangerous act=${act} onClose=${() => onClose(false)}>
    <p>${t("tenant.disable.plan")}</p>
  <//>`;
}

/**
 * The name has to be typed, because nothing brings the jobs back.
 * @param {{tenant: Tenant, onClose: (isDone: boolean) => void}} props
 */
export function DeleteDialog({ tenant, onClose }) {
  const [typed, setTyped] = useState("");
  const name = tenant.tenant;
  const act = async () => {
    await deleteTenant(name);
    onClose(true);
  };
  const jobs = tenant.budgets.filter((one) => one.name === "jobs" || one.name.startsWith("jobs of kind")).reduce((sum, one) => sum + Number(one.used), 0);
  const storage = tenant.budgets.find((one) => one.name === "storage");
  const claims = tenant.budgets.find((one) => one.resource === "persistentvolumeclaims");
  return html`<${ActionDialog} title=${t("tenant.delete.ask", { name })} confirm=${t("tenant.delete")} isDangerous isReady=${typed.trim() === name} act=${act} onClose=${() => onClose(false)}>
    <p>${t("tenant.delete.plan")}</p>
    <ul class="plan">
      <li><span>${t("column.namespace")}</span><b>${tenant.namespace}</b></li>
      <li><span>${t("tenant.delete.jobs")}</span><b>${jobs}</b></li>
      ${claims ? html`<li><span>${t("tenant.delete.claims")}</span><b>${claims.used}</b></li>` : null}
      ${storage ? html`<li><span>${t("limit.storage")}</span><b>${storage.used}</b></li>` : null}
    </ul>
    ${hasAbility("history") ? html`<p class="quiet">${t("tenant.delete.left")}</p>` : null}
    ${isOnCluster() ? null : html`<p class="quiet">${t("tenant.delete.user")}</p>`}
    <label>${t("tenant.delete.type", { name })}<input value=${typed} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} /></label>
  <//>`;
}
