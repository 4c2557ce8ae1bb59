// Icons of 16 by 16. The states differ by shape, not only by colour.
import { html } from "../html.js";

/** @type {Record<string, string>} */
const PATHS = {
  Running: "M4.5 2.5v11l9-5.5z",
  Pending: "M4 2h8M4 14h8M5 2c0 4 6 4 6 6s-6 2-6 6M11 2c0 4-6 4-6 6s6 2 6 6",
  Suspended: "M5 3v10M11 3v10",
  Complete: "M2.5 8.5l3.5 3.5 7.5-8",
  Failed: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  Deleting: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.7 9h5.6l.7-9",
  Deleted: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.7 9h5.6l.7-9",
  Unknown: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.5-1.1.9-1.1 1.8M8 13v.1",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5l3.5 3.5",
  close: "M4 4l8 8M12 4l-8 8",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  settings: "M2 4.5h7M13 4.5h1M11 2.5v4M2 11.5h1M7 11.5h7M5 9.5v4",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5L7.500 13A3 3 0 0 1 3 8.500L4.500 7",
  save: "M8 2.5v8M4.5 7.5L8 11l3.5-3.5M2.5 13.5h11",
  leased: "M4.5 2.5v11l9-5.5z",
  unhealthy: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  unknown: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.5-1.1.9-1.1 1.8M8 13v.1",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  free: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11",
  held: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  note: "M8 2.5L14 13H2zM8 6.5v3M8 11.3v.1",
  columns: "M2.500 3h11v10h-11zM6.200 3v10M9.800 3v10",
};

const FILLED = new Set(["Running", "leased"]);

/** @param {{name: string}} props */
export function Icon({ name }) {
  const path = Object.hasOwn(PATHS, name) ? PATHS[name] : PATHS.Unknown;
  return html`<svg class=${FILLED.has(name) ? "icon filled" : "icon"} viewBox="0 0 16 16" aria-hidden="true">
    <path d=${path} />
  </svg>`;
}
