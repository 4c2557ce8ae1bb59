// Single keys. They do nothing while somebody types or a dialog is open, and can be switched off (WCAG 2.1.4).
import { useEffect, useRef } from "../html.js";
import { preferences } from "./preferences.js";

/**
 * @param {Record<string, () => void>} keys what each key does while the component is shown
 */
export function useShortcuts(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      const act = latest.current[event.key];
      if (!act || !preferences.value.shortcuts || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && target.closest("input:not([type=checkbox]), textarea, select") !== null;
}
