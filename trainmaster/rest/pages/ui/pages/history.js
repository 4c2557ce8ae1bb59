// Jobs that have ended or were deleted, the newest first, in pages.
import { html, useEffect, useState } from "../html.js";
import { get } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { buildJobAddress } from "../lib/job_address.js";
import { COUNTERS } from "../lib/job_rows.js";
import { useLoaded } from "../lib/load.js";
import { preferences } from "../lib/preferences.js";
import { changeQuery, replaceQuery, route } from "../lib/router.js";
import { hasAbility, isReadOnly, session } from "../lib/session.js";
import { findDay } from "../lib/time.js";
import { showProblem } from "../lib/toasts.js";
import { Age, Choice, Empty, Given, Loading, Problem, Span, State } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { RecordActions } from "../parts/record_actions.js";

/** @typedef {import("../api.js").RecordSummary} RecordSummary */

const PAGE = 100;
const MOST_METRICS = 3;
/** The filters that are texts. */
const WORDS = ["q", "user", "runtime"];
const FILTERS = [...WORDS, "name", "state", "ns", "since", "until", "deleted"];
/** Labels with this beginning are ours. */
const OURS = "trainmaster.dev/";

export function HistoryPage() {
  useEffect(() => {
    document.title = `${t("page.history")} · Trainmaster`;
  });
  return html`<h1>${t("page.history")}</h1>${hasAbility("history") ? html`<${Archive} />` : html`<${Empty}>${t("history.absent")}<//>`}`;
}

function Archive() {
  const { query } = route.value;
  const { zone } = preferences.value;
  const wanted = {
    namespace: query.get("ns"),
    name: query.get("name"),
    q: query.get("q"),
    user: query.get("user"),
    runtime: query.get("runtime"),
    state: query.get("state"),
    since: findDay(query.get("since"), 0, zone),
    // The last day counts, too.
    until: findDay(query.get("until"), 1, zone),
    deleted: query.get("deleted"),
    limit: PAGE,
  };
  const [round, setRound] = useState(0);
  const key = JSON.stringify([wanted, round]);
  const first = useLoaded((signal) => get("history", wanted, signal), [key]);
  return html`<${Filters} />
    <${Problem} problem=${first.problem} />
    ${first.value ? html`<${Records} key=${key} first=${first.value} wanted=${wanted} onChange=${() => setRound(round + 1)} />` : first.isLoading ? html`<${Loading} />` : null}`;
}

function Filters() {
  const { query } = route.value;
  /** @type {[string, string][]} */
  const states = [["", t("history.all")], ...["Complete", "Failed", "Deleted"].map((one) => /** @type {[string, string]} */ ([one, t(`state.${one}`)]))];
  const { namespaces } = session.value;
  const namespace = query.get("ns") ?? "";
  const known = namespaces.includes(namespace) || !namespace ? namespaces : [namespace, ...namespaces];
  const isFiltered = FILTERS.some((name) => query.get(name));
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <span class="search"><${Icon} name="search" /><${Word} name="q" label=${t("history.search")} type="search" /></span>
    <${Choice} label=${t("column.state")} value=${query.get("state") ?? ""} choices=${states} onChoose=${(/** @type {string} */ value) => replaceQuery({ state: value })} />
    ${known.length > 1 ? html`<select value=${namespace} class=${namespace ? "chosen" : ""} aria-label=${t("column.namespace")} onChange=${(/** @type {any} */ event) => replaceQuery({ ns: event.target.value })}>
      <option value="">${t("history.everywhere")}</option>${known.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select>` : null}
    <${Word} name="user" label=${t("column.user")} type="text" /><${Word} name="runtime" label=${t("column.runtime")} type="text" />
    <label class="check">${t("history.since")}<${Day} name="since" /></label>
    <label class="check">${t("history.until")}<${Day} name="until" /></label>
    <label class="check"><input type="checkbox" checked=${query.get("deleted") === "true"} onChange=${(/** @type {any} */ event) => replaceQuery({ deleted: event.target.checked ? "true" : null })} />${t("history.deleted")}</label>
    ${query.get("name") ? html`<a class="tag" href=${changeQuery({ name: null })} aria-label=${t("jobs.label.remove", { label: query.get("name") ?? "" })}><${Given} text=${query.get("name")} /><${Icon} name="close" /></a>` : null}
    ${isFiltered ? html`<a href="#/history">${t("jobs.reset")}</a>` : null}
  </form>`;
}

/** @param {{name: string, label: string, type: string}} props a text of the query; it is asked for when typing pauses */
function Word({ name, label, type }) {
  const value = route.value.query.get(name) ?? "";
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return undefined;
    const timer = setTimeout(() => replaceQuery({ [name]: typed }), 250);
    return () => clearTimeout(timer);
  }, [typed]);
  const kind = type === "search" ? undefined : "word";
  return html`<input type=${type} class=${kind} value=${typed} placeholder=${label} aria-label=${label} maxlength="200" onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} />`;
}

/** @param {{name: string}} props */
function Day({ name }) {
  return html`<input type="date" value=${route.value.query.get(name) ?? ""} onChange=${(/** @type {any} */ event) => replaceQuery({ [name]: event.target.value })} />`;
}

/**
 * @param {object} props
 * @param {{items: RecordSummary[], continue: string | null}} props.first
 * @param {import("../lib/api.js").Query} props.wanted
 * @param {() => void} props.onChange
 */
function Records({ first, wanted, onChange }) {
  const [later, setLater] = useState(/** @type {RecordSummary[]} */ ([]));
  const [next, setNext] = useState(first.continue);
  const [isBusy, setBusy] = useState(false);
  const records = [...first.items, ...later];
  const load = async () => {
    setBusy(true);
    try {
      const page = await get("history", { ...wanted, continue: next });
      setLater([...later, ...page.items]);
      setNext(page.continue);
    } catch (error) {
      showProblem(error);
    } finally {
      setBusy(false);
    }
  };
  if (!records.length) return html`<${Empty}>${t("history.none")}<//>`;
  const hasSpaces = !wanted.namespace && session.value.namespaces.length > 1;
  return html`
    <div class="wide-table records" tabindex="0" role="region" aria-label=${t("page.history")}><table>
      <thead><tr><th scope="col">${t("column.state")}</th><th scope="col">${t("column.name")}</th><th scope="col">${t("column.user")}</th><th scope="col">${t("column.runtime")}</th>
        <th scope="col" class="numeric">${t("column.nodes")}</th><th scope="col" class="numeric">${t("column.ended")}</th><th scope="col" class="numeric">${t("column.duration")}</th>
        <th scope="col">${t("history.metrics")}</th><th scope="col">${t("history.deletion")}</th>${isReadOnly() ? null : html`<th scope="col"><span class="unseen">${t("history.actions")}</span></th>`}</tr></thead>
      <tbody>${records.map((record) => html`<${Record} key=${record.uid} record=${record} hasSpaces=${hasSpaces} onChange=${onChange} />`)}</tbody>
    </table></div>
    ${next ? html`<p><button type="button" disabled=${isBusy} onClick=${load}>${t("history.more")}</button></p>` : null}`;
}

/** @param {{record: RecordSummary, hasSpaces: boolean, onChange: () => void}} props */
function Record({ record, hasSpaces, onChange }) {
  const labels = Object.entries(record.labels).filter(([name]) => !name.startsWith(OURS));
  const metrics = Object.entries(record.metrics).filter(([name]) => !COUNTERS.includes(name)).slice(0, MOST_METRICS);
  return html`<tr>
    <td><${State} state=${record.state} /></td>
    <td class="text">${hasSpaces ? html`<span class="quiet">${record.namespace}/</span>` : null}<a class="name" href=${buildJobAddress(record)}><${Given} text=${record.name} /></a>${record.kind === "TrainJob" ? null : html` <span class="quiet">${record.kind}</span>`}
      ${labels.length ? html`<div>${labels.map(([name, value]) => html`<a key=${name} class="tag" href=${changeQuery({ q: `${name}=${value}` })}><${Given} text=${`${name}=${value}`} /></a>`)}</div>` : null}</td>
    <td>${record.user ? html`<${Given} text=${record.user} />` : html`<span class="quiet">–</span>`}</td>
    <td><${Given} text=${record.runtime} /></td>
    <td class="numeric">${record.nodes ?? "–"}</td>
    <td class="numeric"><${Age} time=${record.completed_at ?? record.deleted_at} /></td>
    <td class="numeric"><${Span} from=${record.created_at} to=${record.completed_at ?? record.deleted_at} /></td>
    <td>${metrics.map(([name, value]) => html`<span key=${name} class="metric"><${Given} text=${name} /> <b><${Given} text=${value} /></b></span>`)}</td>
    <td>${record.deleted_at ? html`<${Age} time=${record.deleted_at} /> <span class="quiet"><${Given} text=${record.deleted_by} /></span>` : html`<span class="quiet">–</span>`}</td>
    ${isReadOnly() ? null : html`<td><${RecordActions} record=${record} onDeleted=${onChange} /></td>`}
  </tr>`;
}
