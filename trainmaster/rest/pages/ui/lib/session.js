// Who is logged in, and what the server is. One-time links are taken out of the address before anything else happens.
import { signal } from "../html.js";
import { ApiProblem, get, hasKey, listenForRefusals, request, storeKey } from "./api.js";
import { navigate, parseRoute } from "./router.js";
import { setServerTime } from "./time.js";

/**
 * @typedef {object} Session
 * @property {"unknown" | "out" | "in" | "unreachable"} status
 * @property {import("../api.js").Me | null} me
 * @property {import("../api.js").Server | null} server
 * @property {string[]} namespaces those in which the caller may read jobs
 * @property {ApiProblem | null} problem why nobody is logged in
 */

/** @type {Session} */
const NOBODY = { status: "unknown", me: null, server: null, namespaces: [], problem: null };

export const session = signal(NOBODY);

/** Whether the page may change something. */
export const isReadOnly = () => Boolean(session.value.me?.read_only || session.value.server?.read_only);

/** @param {string} name whether the server can do it; an older one may not */
export const hasAbility = (name) => Boolean(session.value.server?.abilities.includes(name));

/** Whether the server stands in front of a cluster, which lacks some of what a home has. */
export const isOnCluster = () => session.value.server?.mode === "cluster";

/** Whether the caller administrates the installation. On a cluster roles decide, which the page does not know. */
export function mayManageTenants() {
  const { me } = session.value;
  return Boolean(me && (me.administrator || (isOnCluster() && !me.tenant)));
}

/** The namespace that is meant where a page needs one. */
export function findOwnNamespace() {
  const { me, namespaces } = session.value;
  if (me?.namespace) return me.namespace;
  return namespaces.includes("default") ? "default" : (namespaces[0] ?? "default");
}

listenForRefusals((problem) => {
  if (session.value.status === "in" || session.value.status === "unknown") leave(problem);
});

/** @param {ApiProblem | null} problem */
function leave(problem) {
  storeKey(null);
  session.value = { ...NOBODY, status: "out", problem };
}

/** The link of `#/login?link=...`; the address no longer has it afterwards. */
export function takeLink() {
  const { path, query } = parseRoute(location.hash);
  if (path[0] !== "login") return null;
  const link = query.get("link");
  navigate("#/", { replace: true });
  return link;
}

/** The path of the login's cookie: everything before `ui/`. */
function findPrefix() {
  return location.pathname.replace(/ui\/?$/, "");
}

/** @param {{token: string} | {link: string}} proof */
export async function logIn(proof) {
  try {
    const answer = await request("POST", "login", { body: { ...proof, path: findPrefix() }, anonymous: true });
    storeKey(answer.key);
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    session.value = { ...NOBODY, status: "out", problem: error };
    return;
  }
  await loadSession();
}

export async function loadSession() {
  if (!hasKey()) {
    session.value = { ...NOBODY, status: "out" };
    return;
  }
  try {
    const [me, server, namespaces] = await Promise.all([get("me"), readServer(), get("namespaces")]);
    session.value = { status: "in", me, server, namespaces: namespaces.items, problem: null };
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    if (error.status !== 401) session.value = { ...NOBODY, status: "unreachable", problem: error };
  }
}

/** Also sets the clock. */
async function readServer() {
  const sent = Date.now();
  const server = await get("server");
  setServerTime(server.time, sent, Date.now());
  return server;
}

/** The server as it is now: another version means that this page is old. Also lets the clock run right again. */
export async function refreshServer() {
  try {
    const server = await readServer();
    if (session.value.status === "in") session.value = { ...session.value, server };
    return server;
  } catch (error) {
    if (error instanceof ApiProblem) return null;
    throw error;
  }
}

/** The caller with the quota as it is now. */
export async function refreshMe() {
  try {
    const me = await get("me");
    if (session.value.status === "in") session.value = { ...session.value, me };
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
  }
}

export async function logOut() {
  try {
    await request("POST", "logout");
  } catch (error) {
    // Without the key the cookie is worth nothing, so the page is logged out in any case.
    if (!(error instanceof ApiProblem)) throw error;
  }
  leave(null);
}
