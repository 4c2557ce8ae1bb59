// Addresses inside the page are fragments, `#/jobs?state=Failed&q=bert`, so that no proxy has to know them.
import { computed, signal } from "../html.js";

/**
 * @typedef {object} Route
 * @property {string[]} path
 * @property {URLSearchParams} query
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parseRoute(hash) {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = (cut < 0 ? text : text.slice(0, cut)).split("/").filter(Boolean).map(decodePart);
  return { path, query: new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)) };
}

/** @param {string} part */
function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * @param {string[]} path
 * @param {Record<string, string | string[] | null | undefined> | URLSearchParams} [query] empty values are left out
 */
export function buildAddress(path, query = {}) {
  const place = `#/${path.map(encodeURIComponent).join("/")}`;
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const values = entries.flatMap(([name, value]) => [value].flat().map((one) => [name, one ?? ""])).filter(([, one]) => one);
  return values.length ? `${place}?${new URLSearchParams(values)}` : place;
}

const hash = signal(location.hash);
for (const type of ["hashchange", "popstate"]) {
  window.addEventListener(type, () => {
    hash.value = location.hash;
  });
}

export const route = computed(() => parseRoute(hash.value));

/**
 * @param {string} address from `buildAddress`
 * @param {{replace?: boolean}} [options] replace: "back" skips the address that is left
 */
export function navigate(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  hash.value = location.hash;
}

/**
 * The address of the shown page with other values in its query.
 * @param {Record<string, string | string[] | null>} changes null: leave it out
 */
export function changeQuery(changes) {
  const { path, query } = route.value;
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one) next.append(name, one);
  }
  return buildAddress(path, next);
}

/** @param {Record<string, string | string[] | null>} changes */
export function replaceQuery(changes) {
  navigate(changeQuery(changes), { replace: true });
}
