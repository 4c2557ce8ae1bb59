// The one place that names the vendored libraries, but for uPlot, which few pages load (parts/chart.js).
import { Fragment, h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { Fragment, render };
export { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor/hooks.js";
export { batch, computed, effect, signal, untracked } from "./vendor/signals.js";

/**
 * @template T
 * @typedef {import("./vendor/signals.js").Signal<T>} Signal
 */

/** Markup as a tagged template. Values become text or properties, never markup. */
export const html = htm.bind(h);
