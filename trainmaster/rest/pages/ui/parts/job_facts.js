// What a job reports about itself, and its facts: numbers first, then the rest in pairs.
import { html } from "../html.js";
import { t } from "../lib/i18n.js";
import { COUNTERS } from "../lib/job_rows.js";
import { formatSpan } from "../lib/time.js";
import { Copy, Given, Progress, Span, Time } from "./basics.js";

/** @typedef {import("../lib/job_state.js").JobDetail} JobDetail */
/** @typedef {import("../lib/job_state.js").RecordDetail} RecordDetail */

/** @param {{data: JobDetail | RecordDetail, live: JobDetail | null, record: RecordDetail | null}} props */
export function Facts({ data, live, record }) {
  return html`
    ${live?.progress ? html`<${Reported} progress=${live.progress} isOver=${Boolean(live.completed_at)} />` : null}
    ${record && Object.keys(record.metrics).length ? html`<${Reported} progress=${{ percent: null, eta_seconds: null, metrics: record.metrics }} isOver=${true} />` : null}
    <dl class="facts">
      <${Fact} name="duration"><${Span} from=${data.created_at} to=${data.completed_at ?? record?.deleted_at} /><//>
      <${Fact} name="created"><${Time} time=${data.created_at} /><//>
      ${data.completed_at ? html`<${Fact} name="ended"><${Time} time=${data.completed_at} /><//>` : null}
      ${record?.deleted_at ? html`<${Fact} name="deleted"><${Time} time=${record.deleted_at} /><//>` : null}
      ${record?.deleted_by ? html`<${Fact} name="deleted_by"><${Given} text=${record.deleted_by} /><//>` : null}
      ${data.nodes === null ? null : html`<${Fact} name="nodes">${data.nodes}<//>`}
      ${data.user ? html`<${Fact} name="user"><${Given} text=${data.user} /><//>` : null}
      ${live ? html`<${LiveFacts} job=${live} />` : null}
      ${data.runtime ? html`<${Fact} name="runtime"><${Given} text=${data.runtime} /><//>` : null}
      <${Labels} labels=${data.labels} />
      <${Fact} name="uid"><code class="uid">${data.uid}</code><${Copy} text=${data.uid} /><//>
    </dl>`;
}

/** @param {{job: JobDetail}} props */
function LiveFacts({ job }) {
  return html`
    <${Fact} name="restarts">${job.restarts}${job.max_restarts === null ? null : html` <span class="quiet">${t("fact.of", { n: job.max_restarts })}</span>`}<//>
    ${job.framework ? html`<${Fact} name="framework"><${Given} text=${job.framework} /><//>` : null}
    ${job.deadline ? html`<${Fact} name="deadline"><${Term} term=${job.deadline} /><//>` : null}
    ${job.retention ? html`<${Fact} name="retention"><${Term} term=${job.retention} /><//>` : null}`;
}

/** @param {{labels: Record<string, string>}} props */
function Labels({ labels }) {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  if (!pairs.length) return null;
  return html`<${Fact} name="labels">${pairs.map((pair) => html`<a key=${pair} class="tag" href=${`#/jobs?label=${encodeURIComponent(pair)}`}><${Given} text=${pair} /></a>`)}<//>`;
}

/** @param {{name: string, children?: unknown}} props */
function Fact({ name, children }) {
  return html`<div class=${`fact-${name}`}><dt>${t(`fact.${name}`)}</dt><dd>${children}</dd></div>`;
}

/** @param {{term: {seconds: number, source: string}}} props */
function Term({ term }) {
  return html`<span title=${term.source}>${formatSpan(term.seconds)}</span>`;
}

/** @param {{progress: Omit<import("../api.js").Progress, "updated_at">, isOver: boolean}} props */
function Reported({ progress, isOver }) {
  const metrics = Object.entries(progress.metrics).filter(([name]) => !COUNTERS.includes(name));
  const [step, total] = COUNTERS.map((name) => Number(progress.metrics[name] ?? NaN));
  return html`<section class="reported" aria-label=${t("column.progress")}>
    ${progress.percent === null ? null : html`<div class="bar"><${Progress} percent=${progress.percent} label=${t("column.progress")} isWide=${true} />
      ${step && total ? html`<span class="quiet">${t("job.step", { step, total })}</span>` : null}
      ${progress.eta_seconds === null || isOver ? null : html`<span class="quiet">${t("job.eta", { span: formatSpan(progress.eta_seconds) })}</span>`}</div>`}
    ${metrics.length ? html`<dl class="metrics">${metrics.map(([name, value]) => html`<div key=${name}><dt><${Given} text=${name} /></dt><dd><${Given} text=${value} /></dd></div>`)}</dl>` : null}
  </section>`;
}
