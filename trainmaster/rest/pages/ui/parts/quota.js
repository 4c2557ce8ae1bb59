// Limits and how much of each is used: those that matter at first, the others on demand.
import { html, useState } from "../html.js";
import { findText, t } from "../lib/i18n.js";
import { formatQuantity, parseQuantity } from "../lib/quantity.js";
import { UseLine } from "./machine.js";

/** @typedef {{resource: string, allowed: string, used: string}} Use */

/** The others count objects of single kinds, or say the same as one of these. */
const MAIN = [
  ...["count/trainjobs.trainer.kubeflow.org", "limits.cpu", "limits.memory", "requests.nvidia.com/gpu"],
  ...["pods", "trainmaster.dev/pids", "trainmaster.dev/storage", "trainmaster.dev/object-bytes"],
];
/** From this share on, every limit is shown. */
const NOTABLE = 50;

/** @param {Use} use */
function getShare(use) {
  const allowed = parseQuantity(use.allowed);
  return allowed > 0 ? (100 * parseQuantity(use.used)) / allowed : 0;
}

/** @param {{uses: Use[]}} props */
export function Quota({ uses }) {
  const [isWhole, setWhole] = useState(false);
  const order = (/** @type {Use} */ use) => (MAIN.indexOf(use.resource) + 1 || MAIN.length + 1);
  const sorted = [...uses].sort((one, other) => order(one) - order(other));
  const notable = sorted.filter((use) => MAIN.includes(use.resource) || getShare(use) >= NOTABLE);
  const shown = isWhole || !notable.length ? sorted : notable;
  return html`<ul class="quota">${shown.map((use) => html`<li key=${use.resource}><${Line} use=${use} /></li>`)}</ul>
    ${notable.length && notable.length < sorted.length ? html`<p><button type="button" aria-expanded=${String(isWhole)} onClick=${() => setWhole(!isWhole)}>${isWhole ? t("quota.less") : t("overview.more", { n: sorted.length - notable.length })}</button></p>` : null}`;
}

/** @param {{use: Use}} props */
function Line({ use }) {
  const { resource } = use;
  const name = findText(`quota.${resource}`) ?? resource.replace(/^count\//, "");
  const text = `${formatQuantity(resource, use.used)} / ${formatQuantity(resource, use.allowed)}`;
  return html`<${UseLine} name=${name} title=${resource} share=${getShare(use)} text=${text} />`;
}
