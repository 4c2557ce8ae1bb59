// Files of a job: a list with sizes and hashes, what may be shown of one, and saving it.
import { html, useEffect, useState } from "../html.js";
import { ApiProblem, open } from "../lib/api.js";
import { saveFile } from "../lib/downloads.js";
import { formatBytes } from "../lib/quantity.js";
import { formatNumber, t } from "../lib/i18n.js";
import { useLoaded } from "../lib/load.js";
import { toVisible } from "../lib/log_text.js";
import { replaceQuery, route } from "../lib/router.js";
import { Copy, Empty, Given, Loading, Problem, Time } from "./basics.js";
import { Icon } from "./icons.js";

/** @typedef {import("../lib/downloads.js").FileSource} FileSource */
/** @typedef {import("../api.js").FileEntry} FileEntry */
/** @typedef {"outputs" | "code"} What */

/**
 * @param {{source: FileSource, what: What, files: import("../api.js").FileEntries, empty: string}} props
 */
export function Files({ source, what, files, empty }) {
  const path = route.value.query.get("file") ?? "";
  const shown = files.items.find((file) => file.path === path && file.preview);
  if (!files.items.length) return html`<${Empty}>${files.missing ? html`<${Given} text=${files.missing} />` : empty}<//>`;
  return html`
    <div class="wide-table" tabindex="0" role="region" aria-label=${t(`tab.${what}`)}><table class="files">
      <thead><tr><th scope="col">${t("file.path")}</th><th scope="col" class="numeric">${t("file.size")}</th>
        ${what === "outputs" ? html`<th scope="col">${t("file.modified")}</th>` : null}
        <th scope="col">SHA-256</th><th scope="col"><span class="unseen">${t("file.save")}</span></th></tr></thead>
      <tbody>${files.items.map((file) => html`<${Row} key=${file.path} file=${file} source=${source} what=${what} isShown=${file === shown} />`)}</tbody>
    </table></div>
    <p class="quiet">${t("file.count", { n: files.count, size: formatBytes(files.bytes) })}${files.count > files.items.length ? html` ${t("file.first", { shown: formatNumber(files.items.length) })}` : null}</p>
    ${shown ? html`<${Preview} key=${shown.path} source=${source} what=${what} file=${shown} />` : null}`;
}

/** @param {{file: FileEntry, source: FileSource, what: What, isShown: boolean}} props */
function Row({ file, source, what, isShown }) {
  const name = html`<${Given} text=${file.path} />`;
  return html`<tr aria-selected=${isShown ? "true" : undefined}>
    <td class="text pod">${file.preview ? html`<button type="button" class="link" aria-expanded=${String(isShown)} onClick=${() => replaceQuery({ file: isShown ? null : file.path })}>${name}</button>` : name}
      ${file.link ? html` <span class="quiet">→ <${Given} text=${file.link} /></span>` : null}</td>
    <td class="numeric">${file.link ? "–" : formatBytes(file.bytes)}</td>
    ${what === "outputs" ? html`<td><${Time} time=${file.modified_at} /></td>` : null}
    <td class="pod">${file.sha256 ? html`<span title=${file.sha256}>${file.sha256.slice(0, 12)}</span><${Copy} text=${file.sha256} />` : html`<span class="quiet">–</span>`}</td>
    <td>${file.link ? null : html`<button type="button" class="bare" onClick=${() => saveFile(source, what, file.path)} aria-label=${t("file.save.name", { name: file.path })} title=${t("file.save")}><${Icon} name="save" /></button>`}</td>
  </tr>`;
}

/**
 * The first MiB of a text, or an image. Everything else is only saved.
 * @param {{source: FileSource, what: What, file: FileEntry}} props
 */
function Preview({ source, what, file }) {
  const { value, problem } = useLoaded((signal) => readPreview(source, what, file.path, signal), [source.path, file.path, file.sha256]);
  return html`<section class="preview" aria-label=${file.path}>
    <h2><${Given} text=${file.path} /></h2>
    <${Problem} problem=${problem} />
    ${value || problem ? null : html`<${Loading} />`}
    ${value?.kind === "text" ? html`<pre tabindex="0">${toVisible(value.text)}</pre>` : null}
    ${value?.blob ? html`<${Picture} blob=${value.blob} name=${file.path} />` : null}
    ${value?.isCut ? html`<p class="quiet">${t("file.cut")}</p>` : null}
  </section>`;
}

/** @param {{blob: Blob, name: string}} props */
function Picture({ blob, name }) {
  const [address, setAddress] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return address ? html`<img src=${address} alt=${name} />` : null;
}

/**
 * @param {FileSource} source
 * @param {What} what
 * @param {string} path
 * @param {AbortSignal} signal
 */
export async function readPreview(source, what, path, signal) {
  const response = await open("GET", `${source.path}/${what}/content`, { query: { ...source.query, path, preview: true }, signal });
  const kind = response.headers.get("x-preview") ?? "text";
  const isCut = response.headers.get("x-truncated") === "true";
  const bytes = await response.arrayBuffer();
  if (kind === "text") return { kind, text: new TextDecoder().decode(bytes), blob: null, isCut };
  if (kind !== "png" && kind !== "jpeg") throw new ApiProblem({ status: 415 });
  return { kind, text: "", blob: new Blob([bytes], { type: `image/${kind}` }), isCut };
}
