// The corner where messages appear; screen readers read them as they come.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { removeToast, toasts } from "../lib/toasts.js";
import { Sentence } from "./basics.js";
import { Icon } from "./icons.js";

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      (toast) =>
        html`<div key=${toast.id} class="toast ${toast.kind}">
          <${Icon} name=${toast.kind === "done" ? "Complete" : "Failed"} />
          <div><${Sentence} text=${toast.text} />${toast.hint ? html`<div class="hint"><${Sentence} text=${toast.hint} /></div>` : null}</div>
          <button type="button" class="bare" onClick=${() => removeToast(toast.id)} aria-label=${t("close")}><${Icon} name="close" /></button>
        </div>`,
    )}
  </div>`;
}
