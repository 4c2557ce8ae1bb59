"""A page of the dashboard in a real Chromium, beside its server on the same cores; used by `bench.dashboard`.

A script that runs before those of the page notes when something is there, tasks that keep the page from answering, and
how late lines are. Times are the browser's own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page

from bench._load import percentile
from bench._report import Report
from tests.browser.desk import PATIENCE, Desk, People
from tests.browser.jobs import submit
from tests.support.server import ServerProcess, launch_server

RUNS = 10
MANY_JOBS = 10_000
LINES = 1_000_000

# Runs before the page's own scripts, so nothing is missed.
OBSERVE = """
window.seen = {tasks: [], keys: [], late: [], at: {}};
const observe = (options, take) =>
  new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({buffered: true, ...options});
observe({type: "longtask"}, (one) => seen.tasks.push(one.duration));
observe({type: "event", durationThreshold: 16}, (one) => one.name === "keydown" && seen.keys.push(one.duration));
const marks = {row: "table tbody tr[data-key]", rank: ".wide-table tbody tr", line: ".log-rows .line"};
const look = () => {
  for (const [name, selector] of Object.entries(marks)) {
    if (!(name in seen.at) && document.querySelector(selector)) seen.at[name] = performance.now();
  }
  const count = parseInt((document.querySelector(".count")?.textContent ?? "").replace(",", ""));
  if (!("many" in seen.at) && count >= MANY) seen.at.many = performance.now();
  const last = [...document.querySelectorAll(".log-rows .line .text")].at(-1)?.textContent ?? "";
  if (last.startsWith("at ") && last !== seen.last) seen.late.push(Date.now() - 1000 * Number(last.slice(3)));
  if (!("end" in seen.at) && last.startsWith("LAST")) seen.at.end = performance.now();
  seen.last = last;
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
""".replace("MANY", str(MANY_JOBS)).replace("LAST", f"line {LINES - 1:08}")
# Milliseconds from what a person does until it is painted.
UNTIL = """
(act, isDone) => new Promise((resolve) => {
  const began = performance.now();
  act();
  const look = () => (isDone() ? resolve(performance.now() - began) : requestAnimationFrame(look));
  requestAnimationFrame(look);
})
"""


@dataclass
class Bench:
    browser: Browser
    report: Report

    def check(self, what: str, found: list[float], at_most: float | None, unit: str, *, anchor: str = "") -> None:
        """Of several runs the 75th percentile. `at_most`: None if nothing is promised."""
        load = f"load {os.getloadavg()[0]:.1f}"
        beside = f"median {statistics.median(found):.3g}{unit}, worst {max(found):.3g}{unit}" if len(found) > 1 else ""
        seen = percentile(found, 0.75) if len(found) > 1 else found[0]
        text, name = ", ".join(filter(None, (anchor, beside, load))), f"dashboard: {what}"
        if at_most is None:
            self.report.note(name, seen, unit=unit, anchor=text)
        else:
            self.report.check(name, seen, at_most=at_most, unit=unit, anchor=text)


@contextmanager
def watching(bench: Bench, desk: Desk) -> Iterator[People]:
    people = People(bench.browser, desk)
    yield people
    for complaint in people.close():
        bench.report.check(f"dashboard: complaints of the browser ({complaint[:80]})", 1, at_most=0)


def open_page(people: People, address: str) -> Page:
    """In a browser that has the page's files already."""
    page = people.open(address)
    page.add_init_script(OBSERVE)
    page.reload()
    page.locator("header.top").wait_for()
    return page


def load_again(page: Page, mark: str) -> float:
    """Milliseconds until something is there."""
    page.reload()
    return read_when_there(page, f"() => seen.at['{mark}'] ?? null")


def read_when_there(page: Page, expression: str) -> float:
    """The page's policy forbids what Playwright waits with."""
    deadline = time.monotonic() + PATIENCE
    while (found := page.evaluate(expression)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{expression} is still null after {PATIENCE:g} s")
        page.wait_for_timeout(10)
    return float(found)


def measure_heap(page: Page) -> float:
    """MB in use, without what is garbage."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def measure_spent(page: Page, act: Callable[[], object]) -> float:
    """Milliseconds for which the page was busy: scripts, styles, layout and drawing."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def read() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration")) * 1000

    before = read()
    act()
    page.wait_for_timeout(200)
    spent = read() - before
    session.detach()
    return spent


def measure_longest_task(page: Page) -> float:
    """The browser lists tasks from 50 ms on."""
    return float(page.evaluate("Math.max(0, ...seen.tasks)"))


def begin_job(desk: Desk, name: str, code: str, is_reached: Callable[[str], bool]) -> None:
    submit(desk.kube, name, code)
    desk.wait_for(name, lambda job: is_reached(job["state"]))


def restart(desk: Desk, home: Path) -> ServerProcess:
    assert desk.server.stop() == 0
    desk.server = launch_server(home)
    return desk.server


def end(desk: Desk) -> None:
    assert desk.server.stop() == 0
