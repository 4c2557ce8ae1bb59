// What a person has typed and not sent yet. It survives a reload, and stays in this tab.

/** @type {Map<string, string>} */
const memory = new Map();

/**
 * @param {string} name
 * @returns {unknown} null if there is none, or it cannot be read
 */
export function readDraft(name) {
  let text = memory.get(name) ?? null;
  try {
    text = sessionStorage.getItem(name) ?? text;
  } catch {
    // A browser that forbids storage keeps it until the page is closed.
  }
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {unknown} value null: forget it
 */
export function writeDraft(name, value) {
  const text = JSON.stringify(value);
  if (value === null) memory.delete(name);
  else memory.set(name, text);
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, text);
  } catch {
    // Storage that is forbidden, or full: memory has it.
    memory.set(name, text);
  }
}
