// Times and ages. Ages are counted by the server's clock, because a browser's clock may be wrong.
import { computed, signal } from "../html.js";
import { t } from "./i18n.js";
import { preferences } from "./preferences.js";

/** Milliseconds that the server's clock is ahead of ours. */
let ahead = 0;

/** The server's time in milliseconds; it advances every second while the page is visible. */
export const now = signal(Date.now());

/**
 * @param {string} serverTime RFC 3339
 * @param {number} sent when the request left, by our clock
 * @param {number} received when the answer came
 */
export function setServerTime(serverTime, sent, received) {
  const time = Date.parse(serverTime);
  if (Number.isFinite(time)) ahead = time - (sent + received) / 2;
  now.value = Date.now() + ahead;
}

setInterval(() => {
  if (!document.hidden) now.value = Date.now() + ahead;
}, 1000);

/** @param {string | null | undefined} text RFC 3339 */
export function parseTime(text) {
  const time = text ? Date.parse(text) : NaN;
  return Number.isFinite(time) ? time : null;
}

/**
 * A span in its two largest units: 42s, 5m 12s, 25m, 3h 12m, 4d 3h.
 * @param {number} seconds
 */
export function formatSpan(seconds) {
  const exact = Math.max(0, Math.floor(seconds));
  // Seconds matter for some minutes only.
  const whole = exact < 600 ? exact : exact - (exact % 60);
  const parts = [
    [Math.floor(whole / 86400), t("unit.d")],
    [Math.floor(whole / 3600) % 24, t("unit.h")],
    [Math.floor(whole / 60) % 60, t("unit.m")],
    [whole % 60, t("unit.s")],
  ];
  const first = parts.findIndex(([count]) => count);
  if (first < 0) return `0${t("unit.s")}`;
  const shown = parts.slice(first, first + 2).filter(([count]) => count);
  return shown.map(([count, unit]) => `${count}${unit}`).join(" ");
}

const zone = computed(() => (preferences.value.zone === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone));

/** How the zone of all shown times is called, for this season. */
export const zoneName = computed(() => {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: zone.value, timeZoneName: "short" });
  return format.formatToParts(new Date()).find((part) => part.type === "timeZoneName")?.value ?? zone.value;
});

// Swedish dates are written as in ISO 8601.
const whole = computed(() => new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: zone.value }));
const clock = computed(() => new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium", timeZone: zone.value }));

/**
 * Date and time with the zone: 2026-11-19 14:50:22 UTC.
 * @param {string | null | undefined} text RFC 3339
 */
export function formatTime(text) {
  const time = parseTime(text);
  return time === null ? "" : `${whole.value.format(time)} ${zoneName.value}`;
}

/**
 * The time of day with milliseconds, for lines whose zone stands in the heading.
 * @param {string} text RFC 3339, possibly with nanoseconds
 */
export function formatClock(text) {
  const time = parseTime(text);
  if (time === null) return "";
  const fraction = /\.(\d{1,3})/.exec(text)?.[1] ?? "";
  return `${clock.value.format(time)}.${fraction.padEnd(3, "0")}`;
}

/** @param {number} seconds since 1970 */
export function formatMoment(seconds) {
  return formatTime(new Date(seconds * 1000).toISOString());
}

/**
 * A time on an axis: of the day, or the day if there are many.
 * @param {number} seconds since 1970
 * @param {number} span of the whole axis, in seconds
 */
export function formatTick(seconds, span) {
  const text = whole.value.format(seconds * 1000);
  if (span > 3 * 86_400) return text.slice(5, 10);
  return span < 900 ? text.slice(11) : text.slice(11, 16);
}

/**
 * When a day begins, or a later one.
 * @param {string | null} day as a date field has it: 2026-11-19
 * @param {number} later days
 * @param {string} zoneWanted "utc", or that of the browser
 * @returns {string | null} RFC 3339; null if it is no day
 */
export function findDay(day, later, zoneWanted) {
  const found = /^(\d{4})-(\d\d)-(\d\d)$/.exec(day ?? "");
  if (!found) return null;
  const [year, month, date] = [Number(found[1]), Number(found[2]) - 1, Number(found[3]) + later];
  const time = zoneWanted === "utc" ? Date.UTC(year, month, date) : new Date(year, month, date).getTime();
  return Number.isFinite(time) ? `${new Date(time).toISOString().slice(0, 19)}Z` : null;
}
