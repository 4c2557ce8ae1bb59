// What waits, in the order in which it will start, each with the reason; and what it waits for.
import { html, useEffect, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { findQueueNamespace, useMachine } from "../lib/machine.js";
import { describeRequests } from "../lib/quantity.js";
import { replaceQuery, route } from "../lib/router.js";
import { session } from "../lib/session.js";
import { Age, Empty, Given, Loading, Problem, Reason, Sentence } from "../parts/basics.js";
import { GpuLegend, GpuMap, Totals } from "../parts/machine.js";

/** @typedef {import("../lib/machine.js").QueuedJob} QueuedJob */
/** @typedef {import("../lib/machine.js").NodeDetail} NodeDetail */

const STEP = 100;
/** In the address: the queue of all namespaces. */
const ALL = "*";

export function QueuePage() {
  const wanted = route.value.query.get("ns") ?? findQueueNamespace();
  const namespace = wanted === ALL ? "" : wanted;
  const { machine, problem } = useMachine(namespace);
  useEffect(() => {
    document.title = `${t("page.queue")} · Trainmaster`;
  });
  return html`<div class="head"><h1>${t("page.queue")}</h1><${NamespacePick} namespace=${namespace} /></div>
    <${Problem} problem=${problem} />
    ${machine ? html`<${Waiting} queue=${machine.queue} namespace=${namespace} /><${Devices} nodes=${machine.nodes ?? []} />` : problem ? null : html`<${Loading} />`}`;
}

/** @param {{namespace: string}} props */
function NamespacePick({ namespace }) {
  const { me, namespaces } = session.value;
  if (me?.tenant || namespaces.length < 2) return null;
  return html`<select value=${namespace || ALL} aria-label=${t("column.namespace")} onChange=${(/** @type {any} */ event) => replaceQuery({ ns: event.target.value })}>
    <option value=${ALL}>${t("queue.all")}</option>
    ${namespaces.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
  </select>`;
}

/** @param {{queue: import("../api.js").Queue, namespace: string}} props */
function Waiting({ queue, namespace }) {
  const [most, setMost] = useState(STEP);
  const { items, whole } = queue;
  return html`<section class="block">
    <h2>${items.length ? t("queue.count", { n: items.length }) : t("overview.waiting")}</h2>
    ${items.length ? html`<p class="quiet">${whole && !namespace ? t("queue.whole") : t("queue.part")}</p>` : html`<${Empty}>${t("queue.none")}<//>`}
    <ol class="queue">${items.slice(0, most).map((job) => html`<${QueueLine} key=${`${job.kind} ${job.namespace}/${job.name}`} job=${job} />`)}</ol>
    ${items.length > most ? html`<p><button type="button" onClick=${() => setMost(most + STEP)}>${t("overview.more", { n: items.length - most })}</button></p>` : null}
  </section>`;
}

/** @param {{job: QueuedJob}} props */
function QueueLine({ job }) {
  const needs = describeRequests(job.requests);
  const label = html`<span class="quiet">${job.namespace}/</span><${Given} text=${job.name} />`;
  return html`<li>
    <span class="place" title=${job.position === null ? t("queue.noplace") : undefined}>${job.position ?? "–"}</span>
    <div>
      <div class="line-1">
        <span>${job.kind && job.uid ? html`<a class="name" href=${buildJobAddress({ ...job, kind: job.kind, uid: job.uid })}>${label}</a>` : html`<span class="name">${label}</span> <span class="badge">${t("queue.pod")}</span>`}
          ${job.priority ? html` <span class="badge">${t("queue.priority", { priority: String(job.priority) })}</span>` : null}</span>
        <${Age} time=${job.since} />
      </div>
      <div class="line-2">${job.reason ? html`<b><${Reason} reason=${job.reason} /></b>: ` : null}<${Sentence} text=${job.sentence} /></div>
      ${needs ? html`<div class="line-2">${t("queue.needs")}: ${needs}</div>` : null}
    </div>
  </li>`;
}

/** @param {{nodes: NodeDetail[]}} props */
function Devices({ nodes }) {
  if (!nodes.length) return null;
  const hasGpus = nodes.some((node) => node.gpus.length);
  return html`<section class="block">
    <h2>${t("machine.taken")}</h2>
    <${Totals} nodes=${nodes} />
    <p><a href="#/nodes">${t("machine.nodes")}</a></p>
  </section>
  ${hasGpus ? html`<section class="block"><div class="head"><h2>${t("gpus")}</h2><${GpuLegend} /></div><${GpuMap} nodes=${nodes} isNamed=${nodes.length > 1} /></section>` : null}`;
}
