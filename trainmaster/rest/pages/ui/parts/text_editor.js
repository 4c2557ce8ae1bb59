// A field for text of many lines, with line numbers, and marks at lines that something is said about.
import { html, useLayoutEffect, useMemo, useRef } from "../html.js";

/** @typedef {{line: number, text: string, kind: "error" | "warning"}} Mark */

const LINE_HEIGHT = 18;

/**
 * @param {object} props
 * @param {string} props.id
 * @param {string} props.label
 * @param {string} props.value
 * @param {(text: string) => void} props.onInput
 * @param {Mark[]} [props.marks]
 * @param {{line: number, column: number} | null} [props.target] where the cursor is to be, each time it is another object
 * @param {string} [props.describedBy]
 */
export function TextEditor({ id, label, value, onInput, marks = [], target = null, describedBy }) {
  const box = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const gutter = useRef(/** @type {HTMLDivElement | null} */ (null));
  const count = useMemo(() => countLines(value), [value]);
  const numbers = useMemo(() => Array.from({ length: count }, (_, at) => at + 1).join("\n"), [count]);
  const follow = () => {
    if (gutter.current && box.current) gutter.current.scrollTop = box.current.scrollTop;
  };
  useLayoutEffect(follow);
  useLayoutEffect(() => {
    if (!target || !box.current) return;
    const at = findOffset(value, target.line, target.column);
    box.current.focus();
    box.current.setSelectionRange(at, at);
    box.current.scrollTop = Math.max(0, (target.line - 4) * LINE_HEIGHT);
    follow();
  }, [target]);
  return html`<div class="editor">
    <div class="editor-gutter" ref=${gutter} aria-hidden="true">
      <div class="editor-numbers">
        <pre>${numbers}</pre>
        ${marks.map((mark) => html`<span key=${`${mark.line} ${mark.text}`} class="editor-mark ${mark.kind}" title=${mark.text} style=${{ top: `${(mark.line - 1) * LINE_HEIGHT}px` }}></span>`)}
      </div>
    </div>
    <textarea ref=${box} id=${id} aria-label=${label} aria-describedby=${describedBy} aria-invalid=${marks.some((mark) => mark.kind === "error") ? "true" : undefined}
      spellcheck=${false} autocapitalize="off" autocomplete="off" wrap="off" value=${value} onScroll=${follow}
      onInput=${(/** @type {any} */ event) => onInput(event.target.value)}></textarea>
  </div>`;
}

/** @param {string} text */
function countLines(text) {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}

/**
 * @param {string} text
 * @param {number} line
 * @param {number} column
 */
function findOffset(text, line, column) {
  let at = 0;
  for (let number = 1; number < line; number += 1) {
    const next = text.indexOf("\n", at);
    if (next < 0) return text.length;
    at = next + 1;
  }
  const end = text.indexOf("\n", at);
  return Math.min(at + Math.max(0, column - 1), end < 0 ? text.length : end);
}
