// Amounts as Kubernetes writes them (500m, 2Gi, 100), and numbers as people read them.
import { findText, formatNumber } from "./i18n.js";

/** @type {Record<string, number>} */
const UNITS = {
  ...{ n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 },
  ...{ Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 },
};

/** Resources that are bytes. */
const IN_BYTES = /(^|[./-])(memory|storage|object-bytes)$/;

/**
 * @param {string} resource as Kubernetes names it
 * @param {number} value in cores, bytes or pieces
 */
export function formatAmount(resource, value) {
  return IN_BYTES.test(resource) ? formatBytes(value) : formatNumber(Number(value.toFixed(2)));
}

/**
 * An amount of a quota, for people: 64Mi is 64 MiB.
 * @param {string} resource
 * @param {string} text
 */
export function formatQuantity(resource, text) {
  const value = parseQuantity(text);
  return Number.isNaN(value) ? text : formatAmount(resource, value);
}

/**
 * How people call a resource, such as nvidia.com/gpu.
 * @param {string} resource
 */
export function nameResource(resource) {
  return findText(`resource.${resource}`) ?? resource;
}

/**
 * What a job needs, the scarcest first.
 * @param {Record<string, number>} requests
 */
export function describeRequests(requests) {
  // Every Pod takes the place of one.
  const names = Object.keys(requests).filter((name) => name !== "pods").sort((one, other) => rank(one) - rank(other) || (one < other ? -1 : 1));
  return names.map((name) => `${nameResource(name)}: ${formatAmount(name, requests[name] ?? 0)}`).join(", ");
}

/** @param {string} resource */
function rank(resource) {
  if (resource.endsWith("/gpu")) return 0;
  const known = ["cpu", "memory"].indexOf(resource);
  return known < 0 ? 3 : known + 1;
}

/**
 * @param {string} text
 * @returns {number} NaN if it is none
 */
export function parseQuantity(text) {
  const found = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(text.trim());
  if (!found) return NaN;
  const unit = found[2] ?? "";
  return Number(found[1]) * (unit ? (UNITS[unit] ?? NaN) : 1);
}

/**
 * Four digits: 0.0412, 1234, 1.5e+20.
 * @param {number} value
 */
export function formatValue(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

/**
 * Bytes in the unit that suits them: 312 MiB, 1.5 GiB.
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toPrecision(3).replace(/\.?0+$/, "")} ${units[power]}`;
}
