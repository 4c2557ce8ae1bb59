// What administrators do with tenants. Over plain HTTP no token may come, so there tenants get one-time links instead.
import { get, request } from "./api.js";

/** @typedef {import("../api.js").TenantAnswer} Tenant */

/**
 * What lets a tenant in: a token, shown once, or the address of a one-time link.
 * @typedef {{kind: "token" | "link", tenant: string, text: string, expires: string}} Pass
 */

/** Whether the answer to a request may contain a token. */
export const mayShowTokens = location.protocol === "https:";

/** @param {string} name */
const buildPath = (name) => `tenants/${encodeURIComponent(name)}`;

/** @param {AbortSignal} signal @returns {Promise<Tenant[]>} */
export async function listTenants(signal) {
  return (await get("tenants", undefined, signal)).items;
}

/** @param {string} tenant @returns {Promise<Pass>} */
export async function makeLoginLink(tenant) {
  const made = await request("POST", `${buildPath(tenant)}/login-link`, { body: {} });
  const address = new URL(`#/login?link=${made.link}`, document.baseURI.replace(/#.*$/, ""));
  return { kind: "link", tenant, text: address.href, expires: made.expires_at };
}

/** @param {{tenant: string, token: string, expires_at: string}} answer @returns {Pass} */
function readToken(answer) {
  return { kind: "token", tenant: answer.tenant, text: answer.token, expires: answer.expires_at };
}

/**
 * @param {string} name
 * @param {Record<string, string | number | null>} allowance
 * @param {boolean} withoutWalls
 * @returns {Promise<Pass>}
 */
export async function addTenant(name, allowance, withoutWalls) {
  if (mayShowTokens) return readToken(await request("POST", "tenants", { body: { name, allowance, without_walls: withoutWalls } }));
  await request("PUT", buildPath(name), { body: { allowance, without_walls: withoutWalls } });
  return makeLoginLink(name);
}

/** @param {string} name @returns {Promise<Pass>} */
export async function rotateToken(name) {
  return readToken(await request("POST", `${buildPath(name)}/rotate`, { body: {} }));
}

/** @param {string} name @returns {Promise<Pass>} */
export async function enableTenant(name) {
  if (mayShowTokens) return readToken(await request("POST", `${buildPath(name)}/enable`, { body: {} }));
  await changeTenant(name, { state: "Active" });
  return makeLoginLink(name);
}

/** @param {string} name */
export const disableTenant = (name) => request("POST", `${buildPath(name)}/disable`);

/** @param {string} name */
export const deleteTenant = (name) => request("DELETE", buildPath(name));

/** @param {string} name @param {Record<string, string | number | null>} changes */
export const changeTenant = (name, changes) => request("PATCH", buildPath(name), { body: changes });

/** Limits by name, in the order in which they are asked for; counts are whole numbers, the others amounts such as 64Gi. */
export const LIMITS = ["jobs", "cpu", "memory", "gpus", "storage", "pods", "pids", "objects", "object_bytes"];
const COUNTS = new Set(["jobs", "gpus", "pods", "pids", "objects"]);

/**
 * What the tenant may have, as somebody would type it; "" is no limit.
 * @param {Tenant} tenant
 * @returns {Record<string, string>}
 */
export function readLimits(tenant) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const name of LIMITS) {
    const budget = tenant.budgets.find((one) => one.name === name || one.name.startsWith(`${name} of kind `));
    found[name] = budget?.allowed ?? "";
  }
  return found;
}

/**
 * The limits that were typed and differ from those before; null lifts one.
 * @param {Record<string, string>} typed
 * @param {Record<string, string>} before
 */
export function compareLimits(typed, before) {
  /** @type {Record<string, string | number | null>} */
  const changes = {};
  for (const name of LIMITS) {
    const text = (typed[name] ?? "").trim();
    if (text !== (before[name] ?? "")) changes[name] = text === "" ? null : COUNTS.has(name) && /^\d+$/.test(text) ? Number(text) : text;
  }
  return changes;
}
