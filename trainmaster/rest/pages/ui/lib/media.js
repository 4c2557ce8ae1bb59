// What the browser says about the window and the person: whether it is narrow, where tables show fewer columns; and whether
// the system is dark.
import { signal } from "../html.js";

export const isNarrow = follow("(max-width: 760px)");
export const prefersDark = follow("(prefers-color-scheme: dark)");

/** @param {string} text */
function follow(text) {
  const query = window.matchMedia(text);
  const found = signal(query.matches);
  query.addEventListener("change", () => {
    found.value = query.matches;
  });
  return found;
}
