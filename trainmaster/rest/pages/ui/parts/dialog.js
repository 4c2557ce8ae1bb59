// A modal dialog. The browser keeps the focus inside, closes it with Escape and gives the focus back.
import { html, useEffect, useRef } from "../html.js";
import { t } from "../lib/i18n.js";
import { Icon } from "./icons.js";

/** @param {{title: string, onClose: () => void, children?: unknown, actions?: unknown}} props */
export function Dialog({ title, onClose, children, actions }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const isGone = useRef(false);
  useEffect(() => {
    const dialog = box.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      // The browser tells later that it was closed; then another dialog may stand in its place.
      isGone.current = true;
      dialog?.close();
    };
  }, []);
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onClose=${() => isGone.current || onClose()}>
    <header>
      <h2 id="dialog-title">${title}</h2>
      <button type="button" class="bare" onClick=${onClose} aria-label=${t("close")}><${Icon} name="close" /></button>
    </header>
    <div class="content">${children}</div>
    ${actions ? html`<footer>${actions}</footer>` : null}
  </dialog>`;
}
