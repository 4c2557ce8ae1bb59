// All jobs: search, filters in the address, sorting, and what can be done to many at once.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { COUNTERS, filterRows, getShownState, JobRows, sortRows, STATES } from "../lib/job_rows.js";
import { isNarrow } from "../lib/media.js";
import { lazy } from "../lib/lazy.js";
import { preferences, setPreferences } from "../lib/preferences.js";
import { replaceQuery, route } from "../lib/router.js";
import { isReadOnly, session } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStream } from "../lib/stream.js";
import { now } from "../lib/time.js";
import { VERBS } from "../lib/verbs.js";
import { Age, Empty, Given, Loading, Problem, Progress, Reason, Span, State } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { VirtualTable } from "../parts/table.js";

/** @typedef {import("../lib/job_rows.js").JobRow} JobRow */
/** @typedef {import("../parts/table.js").Column<JobRow>} JobColumn */

const VerbDialog = lazy(() => import("../parts/verb_dialog.js").then((module) => module.VerbDialog));

const DEFAULT_ORDER = "-created";
const SPANS = ["1h", "24h", "7d", "30d"];
const HIDDEN_AT_FIRST = ["kind", "ended", "restarts"];

/** @param {URLSearchParams} query */
function readFilter(query) {
  return {
    q: query.get("q") ?? "",
    states: query.getAll("state"),
    namespace: query.get("ns") ?? "",
    user: query.get("user") ?? "",
    runtime: query.get("runtime") ?? "",
    labels: query.getAll("label"),
    since: query.get("since") ?? "",
  };
}

/** @param {{row: JobRow}} props */
function JobName({ row }) {
  const second = [row.namespace, row.user].filter(Boolean).join(" · ");
  return html`<a href=${buildJobAddress(row)} class="name"><${Given} text=${row.name} /></a>
    ${isNarrow.value ? html`<span class="second"><${State} state=${getShownState(row)} /> <span class="quiet">${second}</span></span>` : null}`;
}

/** @param {{row: JobRow}} props */
function Why({ row }) {
  if (row.state === "Running" && row.reason !== "Stalled") {
    const metrics = Object.entries(row.metrics ?? {}).filter(([name]) => !COUNTERS.includes(name)).slice(0, 3);
    return html`<span class="quiet">${metrics.map(([name, value]) => html`<span class="metric" key=${name}><${Given} text=${name} /> <b><${Given} text=${value} /></b></span>`)}</span>`;
  }
  if (row.state === "Complete" || !(row.reason || row.message)) return null;
  const message = row.message ?? "";
  return html`<span title=${message}><${Reason} reason=${row.reason} />${message ? html`<span class="quiet">: <${Given} text=${message} /></span>` : null}</span>`;
}

/** @returns {JobColumn[]} */
function listColumns() {
  return [
    { name: "state", title: t("column.state"), width: 112, sortable: true, render: (row) => html`<${State} state=${getShownState(row)} />` },
    { name: "name", title: t("column.name"), sortable: true, render: (row) => html`<${JobName} row=${row} />` },
    { name: "namespace", title: t("column.namespace"), width: 116, sortable: true, render: (row) => row.namespace },
    { name: "why", title: t("column.why"), render: (row) => html`<${Why} row=${row} />` },
    { name: "progress", title: t("column.progress"), width: 112, sortable: true, render: (row) => html`<${Progress} percent=${row.percent} label=${t("column.progress")} />` },
    { name: "user", title: t("column.user"), width: 100, sortable: true, render: (row) => html`<${Given} text=${row.user} />` },
    { name: "runtime", title: t("column.runtime"), width: 136, sortable: true, render: (row) => html`<${Given} text=${row.runtime} />` },
    { name: "kind", title: t("column.kind"), width: 100, sortable: true, render: (row) => row.kind },
    { name: "nodes", title: t("column.nodes"), width: 62, sortable: true, numeric: true, render: (row) => row.nodes ?? "–" },
    { name: "restarts", title: t("column.restarts"), width: 78, sortable: true, numeric: true, render: (row) => row.restarts ?? "–" },
    { name: "created", title: t("column.created"), width: 84, sortable: true, numeric: true, render: (row) => html`<${Age} time=${row.created_at} />` },
    { name: "ended", title: t("column.ended"), width: 84, sortable: true, numeric: true, render: (row) => html`<${Age} time=${row.completed_at} />` },
    { name: "duration", title: t("column.duration"), width: 88, sortable: true, numeric: true, render: (row) => html`<${Span} from=${row.created_at} to=${row.completed_at} />` },
  ];
}

const NARROW = new Set(["name", "created"]);

export function JobsPage() {
  const rows = useMemo(() => new JobRows(), []);
  const { query } = route.value;
  const filter = readFilter(query);
  const order = query.get("sort") || DEFAULT_ORDER;
  useStream(["jobs"], filter.namespace ? { namespace: filter.namespace } : {}, {
    onBegin: () => rows.begin(),
    onEvent: (event, data) => rows.take(event, data),
  });
  useEffect(() => {
    document.title = `${t("page.jobs")} · Trainmaster`;
  });
  const version = rows.version.value;
  const all = useMemo(() => sortRows(rows.list(), order), [version, order]);
  const shown = useMemo(() => filterRows(all, filter, now.peek()), [all, query.toString()]);
  return html`<div class="head"><div class="title"><h1>${t("page.jobs")}</h1>
      <span class="count" aria-live="polite">${t("jobs.count", { n: shown.length })}${shown.length === all.length ? null : html` <span class="quiet">${t("jobs.count.of", { n: all.length })}</span>`}</span></div>
      ${isReadOnly() ? null : html`<a class="button main" href="#/new">${t("page.new")}</a>`}
    </div>
    <${Problem} problem=${rows.problem.value} />
    <${Filters} all=${all} filter=${filter} />
    <${JobsTable} rows=${rows} shown=${shown} order=${order} />`;
}

/** @param {{rows: JobRows, shown: JobRow[], order: string}} props */
function JobsTable({ rows, shown, order }) {
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const keys = useMemo(() => shown.map((row) => row.uid), [shown]);
  // What is not shown is not selected: nothing is done to jobs that nobody sees.
  const chosen = useMemo(() => new Set(keys.filter((key) => selected.has(key))), [keys, selected]);
  /** @param {number} step */
  const move = (step) => {
    const at = cursor === null ? -1 : keys.indexOf(cursor);
    const next = keys[Math.max(0, Math.min(keys.length - 1, at < 0 ? 0 : at + step))];
    if (next !== undefined) setCursor(next);
  };
  const mark = () => {
    const next = new Set(chosen);
    if (cursor !== null && !next.delete(cursor)) next.add(cursor);
    setSelected(next);
  };
  useShortcuts({ j: () => move(1), k: () => move(-1), x: mark });
  const hidden = preferences.value.hidden;
  const columns = listColumns().filter((column) => (isNarrow.value ? NARROW.has(column.name) : !isHidden(column.name, hidden)));
  const change = isReadOnly() ? undefined : setSelected;
  const table = html`<${VirtualTable} label=${t("page.jobs")} rows=${shown} columns=${columns} keyOf=${getUid} nameOf=${getName} rowHeight=${isNarrow.value ? 48 : 31}
      order=${order} onOrder=${(/** @type {string} */ next) => replaceQuery({ sort: next === DEFAULT_ORDER ? null : next })}
      cursor=${cursor} selected=${chosen} onSelect=${change} />`;
  // A dialog stays open when the last of the rows is gone.
  return html`
    <${Selection} rows=${rows} chosen=${chosen} onClear=${() => setSelected(new Set())} />
    ${shown.length ? table : rows.size || rows.isComplete.value ? html`<${NoJobs} isFiltered=${rows.size > 0} />` : html`<${Loading} />`}`;
}

/** @param {JobRow} row */
const getUid = (row) => row.uid;
/** @param {JobRow} row */
const getName = (row) => row.name;

/**
 * Columns are hidden by name; those that are hidden at first are shown by "+NAME".
 * @param {string} name
 * @param {string[]} hidden
 */
function isHidden(name, hidden) {
  return HIDDEN_AT_FIRST.includes(name) ? !hidden.includes(`+${name}`) : hidden.includes(name);
}

/** @param {{isFiltered: boolean}} props */
function NoJobs({ isFiltered }) {
  if (isFiltered) {
    return html`<${Empty}>${t("jobs.none.filtered")} <a href="#/jobs">${t("jobs.all")}</a><//>`;
  }
  return html`<div class="empty"><p>${t("jobs.none")}</p><p><code>trainmaster run --nodes 2 train.py</code></p></div>`;
}

/** @param {{rows: JobRows, chosen: Set<string>, onClear: () => void}} props */
function Selection({ rows, chosen, onClear }) {
  const [open, setOpen] = useState(/** @type {{verb: import("../lib/verbs.js").Verb, jobs: JobRow[]} | null} */ (null));
  /** @param {import("../lib/verbs.js").Verb} verb */
  const ask = (verb) => setOpen({ verb, jobs: [...chosen].flatMap((uid) => rows.find(uid) ?? []) });
  /** @param {boolean} isDone */
  const close = (isDone) => {
    setOpen(null);
    if (isDone) onClear();
  };
  return html`
    ${chosen.size ? html`<div class="selection" role="toolbar" aria-label=${t("selection")}>
      <b>${t("selection.count", { n: chosen.size })}</b>
      ${VERBS.map((verb) => html`<button key=${verb} type="button" onClick=${() => ask(verb)}>${t(`verb.${verb}`)}</button>`)}
      <button type="button" class="bare" onClick=${onClear}>${t("selection.clear")}</button>
    </div>` : null}
    ${open ? html`<${VerbDialog} verb=${open.verb} jobs=${open.jobs} onClose=${close} />` : null}`;
}

/** @param {{all: JobRow[], filter: ReturnType<typeof readFilter>}} props */
function Filters({ all, filter }) {
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  useShortcuts({ "/": () => search.current?.select() });
  const options = useMemo(() => ({ user: collect(all, "user"), runtime: collect(all, "runtime") }), [all]);
  const namespaces = session.value.namespaces;
  const isFiltered = Boolean(filter.q || filter.states.length || filter.namespace || filter.user || filter.runtime || filter.labels.length || filter.since);
  /** @param {string} state */
  const toggle = (state) => replaceQuery({ state: filter.states.includes(state) ? filter.states.filter((one) => one !== state) : [...filter.states, state] });
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <span class="search"><${Icon} name="search" /><input ref=${search} type="search" value=${filter.q} placeholder=${t("jobs.search")} aria-label=${t("jobs.search")}
      onInput=${(/** @type {any} */ event) => replaceQuery({ q: event.target.value })}
      onKeyDown=${(/** @type {any} */ event) => event.key === "Escape" && event.target.blur()} /></span>
    <div class="choice" role="group" aria-label=${t("column.state")}>
      ${STATES.filter((state) => state !== "Deleting").map((state) => html`<button key=${state} type="button" aria-pressed=${String(filter.states.includes(state))} onClick=${() => toggle(state)}>${t(`state.${state}`)}</button>`)}
    </div>
    ${namespaces.length > 1 ? html`<${Pick} name="ns" label=${t("column.namespace")} value=${filter.namespace} options=${namespaces} />` : null}
    <${Pick} name="user" label=${t("column.user")} value=${filter.user} options=${options.user} />
    <${Pick} name="runtime" label=${t("column.runtime")} value=${filter.runtime} options=${options.runtime} />
    <${Pick} name="since" label=${t("jobs.since")} value=${filter.since} options=${SPANS} />
    <${Labels} labels=${filter.labels} />
    ${isNarrow.value ? null : html`<${ColumnMenu} />`}
    ${isFiltered ? html`<a href="#/jobs">${t("jobs.reset")}</a>` : null}
  </form>`;
}

/** @param {JobRow[]} rows @param {"user" | "runtime"} name */
function collect(rows, name) {
  return [...new Set(rows.map((row) => row[name] ?? ""))].filter(Boolean).sort();
}

/** @param {{name: string, label: string, value: string, options: string[]}} props */
function Pick({ name, label, value, options }) {
  if (!options.length && !value) return null;
  const all = value && !options.includes(value) ? [value, ...options] : options;
  return html`<select class=${value ? "chosen" : ""} value=${value} aria-label=${label} onChange=${(/** @type {any} */ event) => replaceQuery({ [name]: event.target.value })}>
    <option value="">${label}</option>
    ${all.map((option) => html`<option key=${option} value=${option}>${option}</option>`)}
  </select>`;
}

/** @param {{labels: string[]}} props */
function Labels({ labels }) {
  const [text, setText] = useState("");
  /** @param {KeyboardEvent} event */
  const add = (event) => {
    if (event.key !== "Enter" || !text.trim()) return;
    replaceQuery({ label: [...new Set([...labels, text.trim()])] });
    setText("");
  };
  return html`
    ${labels.map((label) => html`<button key=${label} type="button" class="tag" onClick=${() => replaceQuery({ label: labels.filter((one) => one !== label) })} aria-label=${t("jobs.label.remove", { label })}><${Given} text=${label} /> <${Icon} name="close" /></button>`)}
    <input class="label" value=${text} placeholder=${t("jobs.label")} aria-label=${t("jobs.label.hint")} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${add} />`;
}

function ColumnMenu() {
  const hidden = preferences.value.hidden;
  /** @param {string} name */
  const toggle = (name) => {
    const key = HIDDEN_AT_FIRST.includes(name) ? `+${name}` : name;
    setPreferences({ hidden: hidden.includes(key) ? hidden.filter((one) => one !== key) : [...hidden, key] });
  };
  return html`<details class="columns"><summary><${Icon} name="columns" />${t("columns")}</summary>
    <div class="panel">
      ${listColumns().filter((column) => column.name !== "name").map((column) => html`<label key=${column.name} class="check"><input type="checkbox" checked=${!isHidden(column.name, hidden)} onChange=${() => toggle(column.name)} />${column.title}</label>`)}
    </div>
  </details>`;
}
