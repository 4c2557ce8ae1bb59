// The page's own texts in the language of the person. Sentences of the server are shown as they come.
import { computed, effect } from "../html.js";
import en from "../i18n/en.js";
import ko from "../i18n/ko.js";
import { preferences } from "./preferences.js";

/** @typedef {Record<string, string>} Texts */

/** @type {Record<string, Texts>} */
const LANGUAGES = { en, ko };

export const language = computed(() => preferences.value.language || guessLanguage());

function guessLanguage() {
  const wished = navigator.languages?.map((tag) => tag.slice(0, 2).toLowerCase()) ?? [];
  return wished.find((tag) => tag in LANGUAGES) ?? "en";
}

const texts = computed(() => /** @type {Texts} */ (LANGUAGES[language.value] ?? en));
const plural = computed(() => new Intl.PluralRules(language.value));
const numbers = computed(() => new Intl.NumberFormat(language.value));

effect(() => {
  document.documentElement.lang = language.value;
});

/**
 * The text of a key. With `n` in the values it is the form for that number: KEY.one or KEY.other.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values) {
  const form = values && typeof values.n === "number" ? `${key}.${plural.value.select(values.n)}` : key;
  const text = texts.value[form] ?? texts.value[`${key}.other`] ?? texts.value[key] ?? key;
  return values ? text.replace(/\{(\w+)\}/g, (whole, name) => format(values[name] ?? whole)) : text;
}

/** @param {string | number} value */
function format(value) {
  return typeof value === "number" ? numbers.value.format(value) : value;
}

/** @param {number} value */
export function formatNumber(value) {
  return numbers.value.format(value);
}

/**
 * The text of a key that may not exist.
 * @param {string} key
 * @returns {string | undefined}
 */
export function findText(key) {
  return texts.value[key];
}
