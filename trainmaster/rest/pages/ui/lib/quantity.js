// Amounts as Kubernetes writes them: 500m, 2Gi, 100.

/** @type {Record<string, number>} */
const UNITS = {
  ...{ n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 },
  ...{ Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 },
};

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
