// Ways to another part of a log, and to a file with all of it.
import { html, useEffect, useRef, useState } from "../html.js";
import { open } from "../lib/api.js";
import { t } from "../lib/i18n.js";
import { preferences } from "../lib/preferences.js";
import { formatTime, zoneName } from "../lib/time.js";
import { showProblem } from "../lib/toasts.js";

/** @typedef {import("../lib/log_lines.js").LogLines} LogLines */

/**
 * @param {object} props
 * @param {LogLines} props.lines
 * @param {{current: number}} props.top index of the first entry that is seen
 * @param {(at: string) => void} props.onGo
 */
export function LogGo({ lines, top, onGo }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!isOpen) return undefined;
    /** @param {Event} event */
    const leave = (event) => {
      const isKey = event instanceof KeyboardEvent;
      if (isKey ? event.key === "Escape" : !box.current?.contains(/** @type {Node} */ (event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("keydown", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("keydown", leave);
    };
  }, [isOpen]);
  return html`<div class="menu" ref=${box}>
    <button type="button" aria-expanded=${String(isOpen)} aria-controls="log-go" onClick=${() => setOpen(!isOpen)}>${t("log.go")}</button>
    ${isOpen ? html`<div id="log-go" class="panel"><${Places} lines=${lines} top=${top} onGo=${onGo} /></div>` : null}
  </div>`;
}

/** @param {{lines: LogLines, top: {current: number}, onGo: (at: string) => void}} props */
function Places({ lines, top, onGo }) {
  const entry = lines.entries[top.current] ?? lines.entries.find((one) => one.kind === "line");
  const [time, setTime] = useState(toField(entry?.time ?? ""));
  const share = Math.round(lines.getShare(top.current) * 1000) / 10;
  /** @param {Event} event */
  const goToTime = (event) => {
    event.preventDefault();
    const found = fromField(time);
    if (found) onGo(found);
  };
  return html`<div class="settings log-places">
    <div class="row"><button type="button" onClick=${() => onGo("start")}>${t("log.go.start")}</button><button type="button" onClick=${() => onGo("end")}>${t("log.go.end")}</button></div>
    <label>${t("log.go.share")}
      <input type="range" min="0" max="100" step="0.1" value=${share} onChange=${(/** @type {any} */ event) => onGo(`${event.target.value}%`)} /></label>
    <form class="row log-when" onSubmit=${goToTime}>
      <label>${t("log.go.time", { zone: zoneName.value })} <input type="datetime-local" step="1" value=${time} onInput=${(/** @type {any} */ event) => setTime(event.target.value)} /></label>
      <button disabled=${!fromField(time)}>${t("log.go.submit")}</button>
    </form>
  </div>`;
}

/** @param {string} time RFC 3339 @returns {string} in the chosen zone, as a field has it */
function toField(time) {
  const parsed = Date.parse(time);
  if (!Number.isFinite(parsed)) return "";
  const ahead = preferences.value.zone === "utc" ? 0 : new Date(parsed).getTimezoneOffset() * 60_000;
  return new Date(parsed - ahead).toISOString().slice(0, 19);
}

/** @param {string} text @returns {string} RFC 3339, or "" */
function fromField(text) {
  const parsed = Date.parse(preferences.value.zone === "utc" ? `${text}Z` : text);
  return Number.isFinite(parsed) ? new Date(parsed).toISOString() : "";
}

/** @param {{lines: LogLines, fileName: string}} props */
export function LogFiles({ lines, fileName }) {
  // The properties stay the same while lines come.
  void lines.version.value;
  const [isBusy, setBusy] = useState(false);
  const download = async () => {
    setBusy(true);
    try {
      const response = await open("GET", `${lines.source.path}/download`, { query: lines.source.query });
      saveAs(await response.blob(), fileName);
    } catch (error) {
      showProblem(error);
    } finally {
      setBusy(false);
    }
  };
  const save = () => {
    const texts = lines.entries.map((entry) => (entry.kind === "line" ? `${formatTime(entry.time)} ${entry.job}/${entry.worker} ${entry.text}\n` : `--- ${entry.text}\n`));
    saveAs(new Blob(texts, { type: "text/plain" }), fileName);
  };
  return html`<button type="button" onClick=${download} disabled=${isBusy} title=${t("log.download.hint")}>${t("log.download")}</button>
    <button type="button" onClick=${save} disabled=${!lines.entries.length} title=${t("log.save.hint")}>${t("log.save")}</button>`;
}

/**
 * @param {Blob} content
 * @param {string} name
 */
function saveAs(content, name) {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
