// What the browser keeps for this page. A browser that forbids storage keeps it until the page is closed.

/** @type {Map<string, string>} */
const memory = new Map();

/** @param {string} name */
export function readStored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return memory.get(name) ?? null;
  }
}

/**
 * @param {string} name
 * @param {string | null} value null: remove it
 */
export function writeStored(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    if (value === null) memory.delete(name);
    else memory.set(name, value);
  }
}
