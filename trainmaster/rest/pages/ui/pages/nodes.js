// The nodes: what each has, what is taken, its conditions, its GPUs, and what runs there.
import { html, useEffect } from "../html.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { countGpus, findQueueNamespace, useMachine } from "../lib/machine.js";
import { isNarrow } from "../lib/media.js";
import { describeRequests, formatAmount, nameResource } from "../lib/quantity.js";
import { replaceQuery, route } from "../lib/router.js";
import { Age, Empty, Given, Loading, Problem } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { GpuLegend, GpuMap, ResourceLine } from "../parts/machine.js";
import { VirtualTable } from "../parts/table.js";

/** @typedef {import("../lib/machine.js").NodeDetail} NodeDetail */
/** @typedef {import("../lib/machine.js").NodeJob} NodeJob */
/** @typedef {import("../parts/table.js").Column<NodeDetail>} NodeColumn */

export function NodesPage() {
  const wanted = route.value.path[1] ?? "";
  const { machine, problem } = useMachine(findQueueNamespace());
  useEffect(() => {
    document.title = `${wanted || t("page.nodes")} · Trainmaster`;
  });
  if (!machine) return html`<h1>${wanted || t("page.nodes")}</h1><${Problem} problem=${problem} />${problem ? null : html`<${Loading} />`}`;
  const { nodes } = machine;
  if (!nodes) return html`<h1>${t("page.nodes")}</h1><${Empty}>${t("nodes.forbidden")}<//>`;
  // A machine of its own is what everybody wants to see who comes here.
  const node = nodes.find((one) => one.name === wanted) ?? (nodes.length === 1 && !wanted ? nodes[0] : undefined);
  if (node) return html`<${OneNode} node=${node} isOnly=${nodes.length === 1} />`;
  if (wanted) return html`<h1><${Given} text=${wanted} /></h1><${Empty}>${t("nodes.missing")} <a href="#/nodes">${t("page.nodes")}</a><//>`;
  return html`<h1>${t("page.nodes")}</h1>${nodes.length ? html`<${List} nodes=${nodes} />` : html`<${Empty}>${t("nodes.none")}<//>`}`;
}

/** @param {{node: NodeDetail}} props */
function NodeState({ node }) {
  const name = node.ready ? (node.cordoned ? "Suspended" : "Complete") : "Failed";
  const text = node.ready ? (node.drain ? t("nodes.drained") : node.cordoned ? t("nodes.cordoned") : t("nodes.ready")) : t("nodes.notready");
  return html`<span class="state state-${name}"><${Icon} name=${name} /><span>${text}</span></span>`;
}

/** @param {NodeDetail} node @param {string} resource */
function find(node, resource) {
  return node.resources.find((one) => one.name === resource);
}

/** @param {{node: NodeDetail, resource: string}} props */
function Cell({ node, resource }) {
  const found = find(node, resource);
  if (!found) return html`<span class="quiet">–</span>`;
  const all = formatAmount(resource, found.allocatable);
  return html`<span>${found.taken === null ? all : `${formatAmount(resource, found.taken)} / ${all}`}</span>`;
}

/** @param {NodeDetail} node @param {string} column */
function measure(node, column) {
  if (column === "state") return Number(node.ready) * 2 - Number(node.cordoned);
  if (column === "gpus") return node.gpus.length;
  if (column === "jobs") return node.jobs?.length ?? -1;
  if (column === "created") return Date.parse(node.created_at);
  return find(node, column)?.allocatable ?? 0;
}

/** @param {NodeDetail[]} nodes @param {string} order */
function sortNodes(nodes, order) {
  const column = order.replace(/^-/, "");
  const sign = order.startsWith("-") ? -1 : 1;
  return [...nodes].sort((one, other) => {
    const difference = column === "name" ? 0 : measure(one, column) - measure(other, column);
    return sign * (difference || one.name.localeCompare(other.name, "en", { numeric: true }));
  });
}

/** @returns {NodeColumn[]} */
function listColumns() {
  return [
    { name: "name", title: t("column.name"), sortable: true, render: (node) => html`<a class="name" href=${`#/nodes/${encodeURIComponent(node.name)}`}>${node.name}</a>${isNarrow.value ? html`<span class="second"><${NodeState} node=${node} /></span>` : null}` },
    { name: "state", title: t("column.state"), width: 150, sortable: true, render: (node) => html`<${NodeState} node=${node} />` },
    { name: "gpus", title: t("gpus"), width: 100, sortable: true, numeric: true, render: (node) => (node.gpus.length ? `${countGpus(node).leased} / ${node.gpus.length}` : "–") },
    { name: "cpu", title: nameResource("cpu"), width: 120, sortable: true, numeric: true, render: (node) => html`<${Cell} node=${node} resource="cpu" />` },
    { name: "memory", title: nameResource("memory"), width: 170, sortable: true, numeric: true, render: (node) => html`<${Cell} node=${node} resource="memory" />` },
    { name: "jobs", title: t("page.jobs"), width: 80, sortable: true, numeric: true, render: (node) => node.jobs?.length ?? "–" },
    { name: "created", title: t("column.created"), width: 90, sortable: true, numeric: true, render: (node) => html`<${Age} time=${node.created_at} />` },
  ];
}

const NARROW = new Set(["name", "gpus"]);

/** @param {{nodes: NodeDetail[]}} props */
function List({ nodes }) {
  const order = route.value.query.get("sort") || "name";
  const columns = listColumns().filter((column) => !isNarrow.value || NARROW.has(column.name));
  return html`<${VirtualTable} label=${t("page.nodes")} rows=${sortNodes(nodes, order)} columns=${columns} keyOf=${getName} rowHeight=${isNarrow.value ? 48 : 31}
    order=${order} onOrder=${(/** @type {string} */ next) => replaceQuery({ sort: next === "name" ? null : next })} />`;
}

/** @param {NodeDetail} node */
const getName = (node) => node.name;

/** @param {{node: NodeDetail, isOnly: boolean}} props */
function OneNode({ node, isOnly }) {
  const offered = node.resources.filter((one) => one.allocatable > 0);
  return html`
    <div class="head"><div class="title">
      ${isOnly ? null : html`<p class="crumbs"><a href="#/nodes">${t("page.nodes")}</a></p>`}
      <h1>${node.name}</h1><${NodeState} node=${node} />
    </div></div>
    <${Drained} drain=${node.drain} />
    <div class="columns-2">
      <div>
        <section><h2>${t("machine.taken")}</h2><ul class="quota">${offered.map((one) => html`<li key=${one.name}><${ResourceLine} name=${one.name} taken=${one.taken} offered=${one.allocatable} /></li>`)}</ul></section>
        ${node.gpus.length ? html`<section><div class="head"><h2>${t("gpus")}</h2><${GpuLegend} /></div><${GpuMap} nodes=${[node]} isNamed=${false} /></section>` : null}
      </div>
      <div>
        <section><h2>${t("nodes.jobs")}</h2><${Jobs} jobs=${node.jobs} /></section>
        <${Conditions} node=${node} />
        <${Labels} labels=${node.labels} />
      </div>
    </div>`;
}

/** @param {{drain: NodeDetail["drain"]}} props */
function Drained({ drain }) {
  if (!drain) return null;
  const text = drain.ends_with_start ? t("nodes.drain.shutdown") : t("nodes.drain.text");
  const by = drain.by ? t("nodes.drain.by", { who: drain.by }) : "";
  return html`<p class="drained">${text} <span class="quiet"><${Given} text=${[by, drain.reason].filter(Boolean).join(": ")} /> <${Age} time=${drain.since} /></span></p>`;
}

/** @param {{jobs: NodeJob[] | null}} props */
function Jobs({ jobs }) {
  if (!jobs) return html`<${Empty}>${t("nodes.unknown")}<//>`;
  if (!jobs.length) return html`<${Empty}>${t("nodes.idle")}<//>`;
  return html`<ul class="list">${jobs.map((job) => {
    const label = html`<span class="quiet">${job.namespace}/</span><${Given} text=${job.name} />`;
    return html`<li key=${`${job.kind} ${job.namespace}/${job.name}`}>
      <div class="line-1">${job.kind && job.uid ? html`<a class="name" href=${buildJobAddress({ ...job, kind: job.kind, uid: job.uid })}>${label}</a>` : html`<span class="name">${label}</span>`}<span class="quiet">${t("nodes.pods", { n: job.pods })}</span></div>
      <div class="line-2">${describeRequests(job.requests) || t("nodes.norequests")}</div>
    </li>`;
  })}</ul>`;
}

/** @param {{node: NodeDetail}} props */
function Conditions({ node }) {
  return html`<section><h2>${t("nodes.conditions")}</h2><ul class="list">${node.conditions.map((condition) => {
    // Ready should be true, all others are pressures of some kind.
    const isGood = condition.status === (condition.type === "Ready" ? "True" : "False");
    return html`<li key=${condition.type}>
      <div class="line-1"><span class="state state-${isGood ? "Complete" : "Failed"}"><${Icon} name=${isGood ? "Complete" : "Failed"} />${condition.type}: ${condition.status}</span><span class="quiet"><${Age} time=${condition.since} /></span></div>
      ${condition.message ? html`<div class="line-2"><${Given} text=${condition.message} /></div>` : null}
    </li>`;
  })}</ul></section>`;
}

/** @param {{labels: Record<string, string>}} props */
function Labels({ labels }) {
  const names = Object.keys(labels);
  if (!names.length) return null;
  return html`<section><details><summary>${t("nodes.labels", { n: names.length })}</summary>
    <p class="labels">${names.map((name) => html`<span key=${name} class="tag"><${Given} text=${`${name}=${labels[name]}`} /></span>`)}</p>
  </details></section>`;
}
