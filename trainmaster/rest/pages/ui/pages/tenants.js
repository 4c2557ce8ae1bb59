// Tenants for administrators: who they are, what they may have and use, and how they get in.
import { html, useEffect, useRef, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { formatQuantity } from "../lib/quantity.js";
import { navigate, route } from "../lib/router.js";
import { isOnCluster, isReadOnly } from "../lib/session.js";
import { listTenants, mayShowTokens } from "../lib/tenants.js";
import { addToast } from "../lib/toasts.js";
import { Age, Empty, Loading, Problem, Time } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { Quota } from "../parts/quota.js";
import { AddDialog, DeleteDialog, DisableDialog, LimitsDialog, PassRequest } from "../parts/tenant_dialogs.js";

/** @typedef {import("../lib/tenants.js").Tenant} Tenant */

/** Use changes while somebody looks. */
const AGAIN_MS = 10_000;

export function TenantsPage() {
  const name = route.value.path[1] ?? "";
  const [round, setRound] = useState(0);
  const reload = () => setRound((before) => before + 1);
  const { value, problem, isLoading } = useLoaded(listTenants, [round]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || reload(), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    document.title = `${name || t("page.tenants")} · Trainmaster`;
  });
  // What is open stays open when the server does not answer once: a token is shown in it only this time.
  const last = useRef(/** @type {Tenant[] | null} */ (null));
  last.current = value ?? last.current;
  const tenants = last.current;
  const tenant = tenants?.find((one) => one.tenant === name);
  if (tenant) return html`<${OneTenant} tenant=${tenant} onChange=${reload} />`;
  return html`<div class="head"><h1>${t("page.tenants")}</h1>${tenants && !isReadOnly() ? html`<${Add} onDone=${reload} />` : null}</div>
    <${Problem} problem=${problem} />
    ${name && tenants ? html`<${Empty}>${t("tenants.missing", { name })}<//>` : null}
    ${tenants ? html`<${List} tenants=${tenants} />` : isLoading ? html`<${Loading} />` : null}`;
}

/** @param {{onDone: () => void}} props */
function Add({ onDone }) {
  const [isOpen, setOpen] = useState(false);
  /** @param {boolean} isDone */
  const close = (isDone) => {
    setOpen(false);
    if (isDone) onDone();
  };
  return html`<div class="actions"><button type="button" class="main" onClick=${() => setOpen(true)}>${t("tenant.add")}</button>
    ${isOpen ? html`<${AddDialog} onClose=${close} />` : null}</div>`;
}

/** @param {{tenant: Tenant}} props */
function TenantState({ tenant }) {
  const isActive = tenant.state === "Active";
  return html`<span class="state state-${isActive ? "Complete" : "Suspended"}"><${Icon} name=${isActive ? "Complete" : "Suspended"} /><span>${t(`tenant.state.${tenant.state}`)}</span></span>`;
}

const SHOWN = ["jobs", "cpu", "memory", "gpus", "storage"];

/** @param {Tenant} tenant @param {string} name */
function describeUse(tenant, name) {
  const budget = tenant.budgets.find((one) => one.name === name);
  return budget ? `${formatQuantity(budget.resource, budget.used)} / ${formatQuantity(budget.resource, budget.allowed)}` : "–";
}

/** @param {{tenants: Tenant[]}} props */
function List({ tenants }) {
  if (!tenants.length) return html`<${Empty}>${t("tenants.none")}<//>`;
  return html`<div class="wide-table" tabindex="0" role="region" aria-label=${t("page.tenants")}><table>
    <thead><tr><th scope="col">${t("column.name")}</th><th scope="col">${t("column.state")}</th>
      ${SHOWN.map((name) => html`<th key=${name} scope="col" class="numeric">${t(`limit.${name}`)}</th>`)}
      <th scope="col">${t("tenant.until")}</th><th scope="col" class="numeric">${t("column.created")}</th></tr></thead>
    <tbody>${tenants.map((tenant) => html`<tr key=${tenant.tenant}>
      <td><a class="name" href=${`#/tenants/${encodeURIComponent(tenant.tenant)}`}>${tenant.tenant}</a></td>
      <td><${TenantState} tenant=${tenant} /></td>
      ${SHOWN.map((name) => html`<td key=${name} class="numeric">${describeUse(tenant, name)}</td>`)}
      <td><${Time} time=${tenant.tokens_expire_at.at(-1)} /></td><td class="numeric"><${Age} time=${tenant.created_at} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** @param {{tenant: Tenant, onChange: () => void}} props */
function OneTenant({ tenant, onChange }) {
  return html`<div class="head">
      <div class="title"><p class="crumbs"><a href="#/tenants">${t("page.tenants")}</a></p><h1>${tenant.tenant}</h1><${TenantState} tenant=${tenant} /></div>
      ${isReadOnly() ? null : html`<${Actions} tenant=${tenant} onChange=${onChange} />`}
    </div>
    <div class="columns-2">
      <section><h2>${t("overview.quota")}</h2>${tenant.budgets.length ? html`<${Quota} uses=${tenant.budgets} />` : html`<${Empty}>${t("tenant.unlimited")}<//>`}</section>
      <section><h2>${t("tenant.facts")}</h2><dl class="pairs">
        <div><dt>${t("column.namespace")}</dt><dd><a href=${`#/jobs?ns=${encodeURIComponent(tenant.namespace)}`}>${tenant.namespace}</a></dd></div>
        <div><dt>${t("column.created")}</dt><dd><${Time} time=${tenant.created_at} /></dd></div>
        ${isOnCluster() ? null : html`<div><dt>${t("tenant.user")}</dt><dd>${tenant.unix_user === null ? t("tenant.nouser") : String(tenant.unix_user)}</dd></div>`}
        <div><dt>${t("tenant.tokens")}</dt><dd>${tenant.tokens_expire_at.length ? tenant.tokens_expire_at.map((time, index) => html`<div key=${index}><${Time} time=${time} /></div>`) : t("tenant.notokens")}</dd></div>
      </dl></section>
    </div>`;
}

/** @param {{tenant: Tenant, onChange: () => void}} props */
function Actions({ tenant, onChange }) {
  const [open, setOpen] = useState("");
  const isActive = tenant.state === "Active";
  /** @param {boolean} isDone */
  const close = (isDone) => {
    setOpen("");
    if (!isDone) return;
    onChange();
    if (open === "delete") {
      addToast("done", t("tenant.delete.done", { name: tenant.tenant }));
      navigate("#/tenants");
    }
  };
  const verbs = [...(isActive ? ["link", ...(mayShowTokens ? ["rotate"] : []), "change", "disable"] : ["enable", "change"]), "delete"];
  return html`<div class="actions">
    ${verbs.map((verb) => html`<button key=${verb} type="button" class=${verb === "delete" ? "danger-text" : ""} onClick=${() => setOpen(verb)}>${t(`tenant.${verb}`)}</button>`)}
    ${open === "link" || open === "rotate" || open === "enable" ? html`<${PassRequest} key=${open} tenant=${tenant} way=${open} onClose=${close} />` : null}
    ${open === "change" ? html`<${LimitsDialog} tenant=${tenant} onClose=${close} />` : null}
    ${open === "disable" ? html`<${DisableDialog} tenant=${tenant} onClose=${close} />` : null}
    ${open === "delete" ? html`<${DeleteDialog} tenant=${tenant} onClose=${close} />` : null}
  </div>`;
}
