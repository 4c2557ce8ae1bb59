// Which keys do what.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  ["/", "search"],
  ["j  k", "move"],
  ["Enter", "open"],
  ["x", "select"],
  ["?", "help"],
  ["Esc", "close"],
];

/** @param {{onClose: () => void}} props */
export function Help({ onClose }) {
  return html`<${Dialog} title=${t("keys")} onClose=${onClose}>
    <dl class="keys">
      ${KEYS.map(([key = "", name]) => html`<div key=${name}><dt>${key.split("  ").map((one) => html`<kbd key=${one}>${one}</kbd>`)}</dt><dd>${t(`keys.${name}`)}</dd></div>`)}
    </dl>
    <p class="quiet">${t("keys.off")}</p>
  <//>`;
}
