// Components that few open: their modules are loaded when they are first shown.
import { html, useEffect, useState } from "../html.js";
import { Loading } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { t } from "./i18n.js";

/**
 * A component in the place of one that is loaded when it is first shown.
 * @template {(props: any) => unknown} C
 * @param {() => Promise<C>} load `() => import("./x.js").then((module) => module.X)`
 * @returns {C}
 */
export function lazy(load) {
  /** @type {C | null} */
  let loaded = null;
  /** @param {any} props */
  function Lazy(props) {
    const [state, setState] = useState({ Shown: loaded, hasFailed: false });
    useEffect(() => {
      if (state.Shown) return undefined;
      let isGone = false;
      load().then(
        (Shown) => {
          loaded = Shown;
          if (!isGone) setState({ Shown, hasFailed: false });
        },
        () => isGone || setState({ Shown: null, hasFailed: true }),
      );
      return () => {
        isGone = true;
      };
    }, []);
    if (state.hasFailed) return html`<${Failure} />`;
    return state.Shown ? html`<${state.Shown} ...${props} />` : html`<${Loading} />`;
  }
  return /** @type {any} */ (Lazy);
}

/** A browser keeps in mind that a module failed, so only a new page asks for it again. */
function Failure() {
  return html`<div class="problem" role="alert">
    <${Icon} name="Failed" />
    <div>${t("lazy.failed")} <button type="button" onClick=${() => location.reload()}>${t("reload")}</button></div>
  </div>`;
}
