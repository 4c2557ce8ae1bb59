// What a person has chosen for this browser: language, time zone, theme, and how logs are shown.
import { effect, signal } from "../html.js";
import { readStored, writeStored } from "./storage.js";

const NAME = "trainmaster.preferences";

/**
 * @typedef {object} Preferences
 * @property {"" | "en" | "ko"} language "": as the browser wishes
 * @property {"local" | "utc"} zone
 * @property {"system" | "light" | "dark"} theme
 * @property {boolean} shortcuts whether single keys do something
 * @property {boolean} wrap long log lines
 * @property {boolean} times of log lines
 * @property {string[]} hidden columns of the jobs table
 */

/** @type {Preferences} */
const DEFAULTS = { language: "", zone: "local", theme: "system", shortcuts: true, wrap: false, times: true, hidden: [] };

/** @type {{[K in keyof Preferences]: readonly Preferences[K][] | null}} */
const CHOICES = {
  language: ["", "en", "ko"],
  zone: ["local", "utc"],
  theme: ["system", "light", "dark"],
  shortcuts: [true, false],
  wrap: [true, false],
  times: [true, false],
  hidden: null,
};

/**
 * What is stored may come from another version, so values that are unknown here are ignored.
 * @param {string | null} text
 * @returns {Preferences}
 */
export function parsePreferences(text) {
  /** @type {Record<string, unknown>} */
  let stored = {};
  try {
    const value = JSON.parse(text ?? "{}");
    if (value && typeof value === "object") stored = value;
  } catch {
    stored = {};
  }
  /** @type {Record<string, unknown>} */
  const found = { ...DEFAULTS };
  for (const [name, choices] of Object.entries(CHOICES)) {
    const value = stored[name];
    if (choices ? /** @type {readonly unknown[]} */ (choices).includes(value) : isNames(value)) found[name] = value;
  }
  return /** @type {Preferences} */ (/** @type {unknown} */ (found));
}

/** @param {unknown} value */
function isNames(value) {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

export const preferences = signal(parsePreferences(readStored(NAME)));

/** @param {Partial<Preferences>} changes */
export function setPreferences(changes) {
  preferences.value = { ...preferences.value, ...changes };
  writeStored(NAME, JSON.stringify(preferences.value));
}

effect(() => {
  document.documentElement.dataset.theme = preferences.value.theme;
});
