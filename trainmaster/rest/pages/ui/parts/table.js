// A table that only has the rows that can be seen, so that ten thousand are as quick as ten. Rows that come or go above
// do not move what is being read.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { t } from "../lib/i18n.js";

/**
 * @template R
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {number} [width] pixels; without it the column shares what is left
 * @property {boolean} [sortable]
 * @property {boolean} [numeric]
 * @property {(row: R) => unknown} render
 */

const MORE_ROWS = 8;
const HEAD = 30;

/**
 * @template R
 * @param {object} props
 * @param {string} props.label
 * @param {R[]} props.rows
 * @param {Column<R>[]} props.columns
 * @param {(row: R) => string} props.keyOf
 * @param {number} props.rowHeight
 * @param {string} props.order
 * @param {(order: string) => void} props.onOrder
 * @param {string | null} [props.cursor] key of the row that j and k have reached
 * @param {Set<string>} [props.selected]
 * @param {(keys: Set<string>) => void} [props.onSelect]
 * @param {(row: R) => string} [props.nameOf] for the label of its box
 */
export function VirtualTable({ label, rows, columns, keyOf, rowHeight, order, onOrder, cursor, selected, onSelect, nameOf }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [place, setPlace] = useState({ top: 0, height: 800 });
  useWatchedPlace(scroller, setPlace);
  useAnchor(scroller, rows, keyOf, rowHeight);
  useCursor(scroller, rows, keyOf, rowHeight, cursor ?? null);
  const more = useHasLeapt(place) ? 1 : MORE_ROWS;
  const first = Math.max(0, Math.floor(place.top / rowHeight) - more);
  const last = Math.min(rows.length, Math.ceil((place.top + place.height) / rowHeight) + more);
  const width = columns.length + (onSelect ? 1 : 0);
  const toggle = useToggle(selected, onSelect);
  return html`<div class="scroller" ref=${scroller} tabindex="0" role="region" aria-label=${label}>
    <table class="virtual" aria-rowcount=${rows.length + 1} style=${{ "--row": `${rowHeight}px` }}>
      <colgroup>
        ${onSelect ? html`<col style=${{ width: "34px" }} />` : null}
        ${columns.map((column) => html`<col key=${column.name} style=${column.width ? { width: `${column.width}px` } : {}} />`)}
      </colgroup>
      <thead><tr aria-rowindex="1">
        ${onSelect ? html`<th scope="col"><${SelectAll} rows=${rows} keyOf=${keyOf} selected=${selected} onSelect=${onSelect} /></th>` : null}
        ${columns.map((column) => html`<${Heading} key=${column.name} column=${column} order=${order} onOrder=${onOrder} />`)}
      </tr></thead>
      <tbody>
        ${first ? html`<tr aria-hidden="true" style=${{ height: `${first * rowHeight}px` }}><td colspan=${width}></td></tr>` : null}
        ${rows.slice(first, last).map((row, index) => {
          const key = keyOf(row);
          const isSelected = onSelect ? Boolean(selected?.has(key)) : null;
          return html`<${Row} key=${key} id=${key} row=${row} place=${first + index + 2} columns=${columns} nameOf=${nameOf} isCursor=${key === cursor} isSelected=${isSelected} onToggle=${toggle} />`;
        })}
        ${last < rows.length ? html`<tr aria-hidden="true" style=${{ height: `${(rows.length - last) * rowHeight}px` }}><td colspan=${width}></td></tr>` : null}
      </tbody>
    </table>
  </div>`;
}

/**
 * Most rows of a table that is scrolled or gets other rows stay as they are: those are not made again.
 * @param {object} props
 * @param {string} props.id
 * @param {any} props.row
 * @param {number} props.place in the whole table, from 1 on
 * @param {Column<any>[]} props.columns
 * @param {((row: any) => string) | undefined} props.nameOf
 * @param {boolean} props.isCursor
 * @param {boolean | null} props.isSelected null: it cannot be
 * @param {(key: string) => void} props.onToggle
 */
function Row({ id, row, place, columns, nameOf, isCursor, isSelected, onToggle }) {
  const make = () => html`<tr aria-rowindex=${place} class=${isCursor ? "cursor" : ""} aria-selected=${isSelected === null ? undefined : String(isSelected)} data-key=${id}>
    ${isSelected === null ? null : html`<td class="box"><input type="checkbox" checked=${isSelected} onChange=${() => onToggle(id)} aria-label=${t("select", { name: nameOf?.(row) ?? id })} /></td>`}
    ${columns.map((column) => html`<td key=${column.name} class=${column.numeric ? `numeric col-${column.name}` : `col-${column.name}`}>${column.render(row)}</td>`)}
  </tr>`;
  return useMemo(make, [row, place, columns, isCursor, isSelected]);
}

/**
 * @param {Set<string> | undefined} selected
 * @param {((keys: Set<string>) => void) | undefined} onSelect
 * @returns {(key: string) => void} the same function every time
 */
function useToggle(selected, onSelect) {
  const latest = useRef({ selected, onSelect });
  latest.current = { selected, onSelect };
  const toggle = (/** @type {string} */ key) => {
    const next = new Set(latest.current.selected);
    if (!next.delete(key)) next.add(key);
    latest.current.onSelect?.(next);
  };
  return useMemo(() => toggle, []);
}

/**
 * Whether nothing stays of what was seen. Then rows around what is seen would only delay it.
 * @param {{top: number, height: number}} place
 */
export function useHasLeapt({ top, height }) {
  const before = useRef(top);
  const hasLeapt = Math.abs(top - before.current) >= height;
  before.current = top;
  return hasLeapt;
}

/**
 * @param {object} props
 * @param {Column<any>} props.column
 * @param {string} props.order
 * @param {(order: string) => void} props.onOrder
 */
function Heading({ column, order, onOrder }) {
  const isDown = order === `-${column.name}`;
  const isChosen = isDown || order === column.name;
  const sorted = isChosen ? (isDown ? "descending" : "ascending") : undefined;
  const next = isChosen && !isDown ? `-${column.name}` : column.name;
  const title = column.sortable
    ? html`<button type="button" class="bare" onClick=${() => onOrder(next)}>${column.title}<span aria-hidden="true">${isChosen ? (isDown ? " ↓" : " ↑") : ""}</span></button>`
    : column.title;
  return html`<th scope="col" class=${column.numeric ? "numeric" : ""} aria-sort=${sorted}>${title}</th>`;
}

/** @param {{rows: any[], keyOf: (row: any) => string, selected: Set<string> | undefined, onSelect: (keys: Set<string>) => void}} props */
function SelectAll({ rows, keyOf, selected, onSelect }) {
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  const count = selected?.size ?? 0;
  const isAll = count > 0 && count >= rows.length;
  useLayoutEffect(() => {
    if (box.current) box.current.indeterminate = count > 0 && !isAll;
  });
  const choose = () => onSelect(isAll ? new Set() : new Set(rows.map(keyOf)));
  return html`<input ref=${box} type="checkbox" checked=${isAll} disabled=${!rows.length} onChange=${choose} aria-label=${t("select.all", { n: rows.length })} />`;
}

/**
 * Follows the scroll position, once per frame.
 * @param {{current: HTMLElement | null}} scroller
 * @param {(place: {top: number, height: number}) => void} setPlace
 */
export function useWatchedPlace(scroller, setPlace) {
  useEffect(() => {
    const box = scroller.current;
    if (!box) return undefined;
    let frame = 0;
    const look = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => setPlace({ top: box.scrollTop, height: box.clientHeight }));
    };
    const observer = new ResizeObserver(look);
    observer.observe(box);
    box.addEventListener("scroll", look, { passive: true });
    return () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
      box.removeEventListener("scroll", look);
    };
  }, []);
}

/**
 * Keeps the row that is uppermost where it is when rows come or go above it. At the very top new rows are shown.
 * @template R
 * @param {{current: HTMLElement | null}} scroller
 * @param {R[]} rows
 * @param {(row: R) => string} keyOf
 * @param {number} rowHeight
 */
function useAnchor(scroller, rows, keyOf, rowHeight) {
  const before = useRef(rows);
  useLayoutEffect(() => {
    const box = scroller.current;
    const old = before.current;
    before.current = rows;
    if (!box || old === rows || box.scrollTop < rowHeight) return;
    const row = old[Math.floor(box.scrollTop / rowHeight)];
    if (!row) return;
    const key = keyOf(row);
    const moved = rows.findIndex((one) => keyOf(one) === key);
    if (moved >= 0) box.scrollTop += (moved - Math.floor(box.scrollTop / rowHeight)) * rowHeight;
  }, [rows]);
}

/**
 * Brings the row into view and gives its link the focus.
 * @template R
 * @param {{current: HTMLElement | null}} scroller
 * @param {R[]} rows
 * @param {(row: R) => string} keyOf
 * @param {number} rowHeight
 * @param {string | null} cursor
 */
function useCursor(scroller, rows, keyOf, rowHeight, cursor) {
  useEffect(() => {
    const box = scroller.current;
    const index = cursor === null ? -1 : rows.findIndex((row) => keyOf(row) === cursor);
    if (!box || index < 0) return undefined;
    const top = index * rowHeight;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + rowHeight + HEAD > box.scrollTop + box.clientHeight) box.scrollTop = top + rowHeight + HEAD - box.clientHeight;
    const focus = () => {
      // Whoever has gone to the search meanwhile stays there.
      if (document.activeElement?.matches("input, select")) return;
      const link = /** @type {HTMLElement | null} */ (box.querySelector(`tr[data-key="${CSS.escape(cursor ?? "")}"] a`));
      link?.focus({ preventScroll: true });
    };
    // Rows far away are made in the next frame.
    const frame = requestAnimationFrame(() => requestAnimationFrame(focus));
    return () => cancelAnimationFrame(frame);
  }, [cursor]);
}
