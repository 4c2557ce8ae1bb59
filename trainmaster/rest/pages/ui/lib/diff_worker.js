// Compares texts beside the page, so that a long comparison does not stop it.
import { diffTexts } from "./diff.js";

self.addEventListener("message", (event) => {
  const { id, before, after } = event.data;
  self.postMessage({ id, lines: diffTexts(before, after) });
});
