// Whether the window is narrow, where tables show fewer columns.
import { signal } from "../html.js";

const query = window.matchMedia("(max-width: 760px)");

export const isNarrow = signal(query.matches);

query.addEventListener("change", () => {
  isNarrow.value = query.matches;
});
