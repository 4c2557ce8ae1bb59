// How much of something is taken, and the map of GPUs: leased by whom, free, used by others, unhealthy and why.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { countGpus, findJobAddress, sumResources } from "../lib/machine.js";
import { formatAmount, nameResource } from "../lib/quantity.js";
import { Given } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../lib/machine.js").NodeDetail} NodeDetail */
/** @typedef {import("../lib/machine.js").Gpu} Gpu */

/** From this share on something is shown as nearly used up. */
const NEARLY_ALL = 90;
/** More GPUs than these on all nodes together are shown as small squares. */
const MOST_LARGE = 32;

/**
 * A bar with both numbers.
 * @param {{name: string, title?: string, share: number, text: string}} props
 */
export function UseLine({ name, title, share, text }) {
  const shown = Number.isFinite(share) ? Math.max(0, Math.min(100, share)) : 0;
  return html`<span title=${title}>${name}</span>
    <progress max="100" value=${shown} class=${shown >= NEARLY_ALL ? "full" : ""} aria-label=${name}></progress>
    <span class="numeric">${text}</span>`;
}

/** @param {{name: string, taken: number | null, offered: number}} props */
export function ResourceLine({ name, taken, offered }) {
  const all = formatAmount(name, offered);
  const text = taken === null ? all : `${formatAmount(name, taken)} / ${all}`;
  return html`<${UseLine} name=${nameResource(name)} title=${name} share=${taken === null ? 0 : (100 * taken) / offered} text=${text} />`;
}

/** @param {{nodes: NodeDetail[]}} props */
export function Totals({ nodes }) {
  const totals = sumResources(nodes);
  if (!totals.length) return null;
  return html`<ul class="quota">${totals.map((total) => html`<li key=${total.name}><${ResourceLine} ...${total} /></li>`)}</ul>`;
}

/** @param {{nodes: NodeDetail[], isNamed: boolean}} props isNamed: each map is under the name of its node */
export function GpuMap({ nodes, isNamed }) {
  const equipped = nodes.filter((node) => node.gpus.length);
  const isSmall = equipped.reduce((sum, node) => sum + node.gpus.length, 0) > MOST_LARGE;
  return equipped.map((node) => html`<div key=${node.name} class="gpus" role="group" aria-label=${t("gpus.of", { node: node.name })}>
    ${isNamed ? html`<h3><a href=${`#/nodes/${encodeURIComponent(node.name)}`}>${node.name}</a> <span class="quiet">${t("gpus.leased", countGpus(node))}</span></h3>` : null}
    <ul class=${isSmall ? "gpu-map small" : "gpu-map"}>${node.gpus.map((gpu) => html`<li key=${gpu.id}><${GpuTile} node=${node} gpu=${gpu} isSmall=${isSmall} /></li>`)}</ul>
    ${isSmall ? html`<${Reasons} node=${node} />` : null}
  </div>`);
}

/** @param {{node: NodeDetail, gpu: Gpu, isSmall: boolean}} props */
function GpuTile({ node, gpu, isSmall }) {
  const address = findJobAddress(node, gpu.job);
  const title = [`GPU ${gpu.index}`, t(`gpu.${gpu.state}`), gpu.job, gpu.reason, gpu.product, gpu.id].filter(Boolean).join(", ");
  const content = isSmall
    ? html`<span aria-hidden="true"><b>${gpu.index}</b><${Icon} name=${gpu.state} /></span><span class="unseen">${title}</span>`
    : html`<span class="gpu-head"><b>GPU ${gpu.index}</b><span class="gpu-state"><${Icon} name=${gpu.state} />${t(`gpu.${gpu.state}`)}</span></span>
      <span class="gpu-job">${gpu.job ? html`<${Given} text=${gpu.job} />` : gpu.product}</span>
      ${gpu.reason ? html`<span class="gpu-reason"><${Given} text=${gpu.reason} /></span>` : null}`;
  const style = `gpu gpu-${gpu.state}`;
  return address ? html`<a class=${style} href=${address} title=${title}>${content}</a>` : html`<div class=${style} title=${title}>${content}</div>`;
}

/** What small squares have no room for. @param {{node: NodeDetail}} props */
function Reasons({ node }) {
  const wrong = node.gpus.filter((gpu) => gpu.reason);
  if (!wrong.length) return null;
  return html`<ul class="reasons">${wrong.map((gpu) => html`<li key=${gpu.id}><b>GPU ${gpu.index}</b>: ${t(`gpu.${gpu.state}`)}, <${Given} text=${gpu.reason} /></li>`)}</ul>`;
}

export function GpuLegend() {
  return html`<p class="gpu-legend quiet">${["leased", "free", "held", "unhealthy"].map((state) => html`<span key=${state} class="gpu-${state}"><${Icon} name=${state} />${t(`gpu.${state}`)}</span>`)}</p>`;
}
