"""The dashboard in a real Chromium, beside the server on the same cores: how long a person waits.

Each figure is the 75th percentile of ten runs, with the load average beside it; what follows a job is measured once,
over as many changes as there were. The jobs are real: 10,000 finished ones (`bench.history` copies one that ran), one
of which has 20 curves of 512 points, programs that print the time, 10,000 lines a second, and a million lines
(`bench._page_logs`), and 64 ranks. A task is what keeps the page from answering; the browser names those of 50 ms and
more. Curves count as drawn when the page has nothing left to do after a smoothing was changed: scripts, layout and
drawing together. Tabs of one browser have four streams together, and the others ask every 5 seconds; what they cost is
the server's CPU time over 30 seconds.

Promises: those of the issue that asked for the page.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from bench import history
from bench._page import (
    MANY_JOBS,
    RUNS,
    Bench,
    end,
    load_again,
    measure_heap,
    measure_longest_task,
    measure_spent,
    open_page,
    read_when_there,
    restart,
    watching,
)
from bench._page_logs import measure_logs
from bench._report import Report
from bench.lifecycles import cpu_seconds
from tests.browser.desk import HIDE, PATIENCE, Desk, People, launch, open_desk
from tests.browser.jobs import submit
from tests.support.server import launch_server
from tools.browser import CHROMIUM
from tools.toolbox import Toolbox
from trainmaster.app.home.folder import Home
from trainmaster.history.archive import Archive, Filter
from trainmaster.history.curves.series import LIMIT, Point

CURVES, RANKS, TABS = 20, 64, 50
CURVED = "past-1"
"""The job with curves."""
STREAMS = 4
"""Of one browser."""
IDLE_SECONDS, HIDDEN_SECONDS = 30, 20

_TRANSFERRED = """
() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((one) => !one.name.includes("/api/")).reduce((sum, one) => sum + one.encodedBodySize, 0)
"""
_SMOOTH = """
(weight) => {
  const field = document.querySelector(".curve-tools input[type=range]");
  field.value = weight;
  field.dispatchEvent(new Event("input", {bubbles: true}));
}
"""
_FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def measure_first_paint(bench: Bench, folder: Path) -> None:
    home = folder / "empty"
    server = launch_server(home)
    desk = open_desk(server)
    with watching(bench, desk) as people:
        page = people.open("#/")
        bench.check("transferred until the overview is there, gzipped", [page.evaluate(_TRANSFERRED) / 1e3], 120, " KB")
        warm = [_paint(page) for _ in range(RUNS)]
        bench.check("first paint, warm", warm, 300, " ms")
        first = []
        for _ in range(RUNS):
            server = restart(desk, home)
            first.append(_paint(page))
        bench.check("first paint, first connection to a server", first, 1500, " ms")
    end(desk)


def _paint(page: Page) -> float:
    page.reload()
    page.locator("header.top").wait_for()
    return read_when_there(page, _FIRST_PAINT)


def measure_many_jobs(bench: Bench, folder: Path) -> None:
    desk = open_desk(launch_server(folder / "many"))
    with watching(bench, desk) as people:
        page = open_page(people, "#/jobs")
        anchor = f"{MANY_JOBS:,} jobs"
        cold = load_again(page, "row")
        rows, complete = [], []
        for _ in range(RUNS):
            rows.append(load_again(page, "row"))
            complete.append(read_when_there(page, "() => seen.at.many ?? null"))
        bench.check("first rows of the jobs", rows, 500, " ms", anchor=f"{anchor}, the first time {cold:.0f} ms")
        bench.check("all jobs searchable", complete, 2000, " ms", anchor=anchor)
        _measure_typing(bench, page, anchor)
        _measure_scrolling(bench, page, anchor)
        _measure_curves(bench, desk, people)
    end(desk)


def _measure_typing(bench: Bench, page: Page, anchor: str) -> None:
    search = page.get_by_role("searchbox")
    search.click()
    page.evaluate("seen.keys.length = 0")
    for letter in "past-12345":
        page.keyboard.press(letter)
        page.wait_for_timeout(100)
    # The browser leaves out what took less than two frames.
    found = [float(one) for one in page.evaluate("seen.keys")]
    bench.check("from a key to its paint", [*found, *[16.0] * (RUNS - len(found))], 50, " ms", anchor=anchor)
    search.fill("")


def _measure_scrolling(bench: Bench, page: Page, anchor: str) -> None:
    page.locator("table tbody tr[data-key]").first.hover()
    page.wait_for_timeout(1000)
    longest = []
    for number in range(RUNS):
        page.evaluate("seen.tasks.length = 0")
        for _ in range(40):
            page.mouse.wheel(0, -1500 if number % 2 else 1500)
            page.wait_for_timeout(20)
        page.wait_for_timeout(200)
        longest.append(measure_longest_task(page))
    bench.check("longest task while the jobs scroll", longest, 50, " ms", anchor=anchor)
    elements = page.evaluate("document.getElementsByTagName('*').length")
    bench.check("elements of the page of jobs", [elements], 2000, "", anchor=anchor)
    bench.check("heap of the page of jobs", [measure_heap(page)], 60, " MB", anchor=anchor)


def _measure_curves(bench: Bench, desk: Desk, people: People) -> None:
    page = people.open(f"{desk.find_address(CURVED)}?tab=curves&smooth=0.5")
    expect(page.locator(".curves .chart canvas")).to_have_count(CURVES)
    page.wait_for_timeout(500)
    found = [measure_spent(page, partial(page.evaluate, _SMOOTH, 0.52 + at / 50)) for at in range(RUNS)]
    idle = measure_spent(page, partial(page.evaluate, "0"))
    what = f"{CURVES} curves of {LIMIT} points drawn"
    bench.check(what, found, 16, " ms", anchor=f"a page at rest {idle:.1f} ms")
    page.context.close()


def add_curves(home: Path) -> None:
    archive = Archive.open(Home(home).history)
    (record,) = archive.select(Filter(name=CURVED, limit=1))
    points = [
        Point(
            1_700_000_000 + 60 * step,
            metrics={
                "current_step": float(step),
                **{f"metric-{number}": math.sin(step / (number + 3)) + number for number in range(CURVES)},
            },
        )
        for step in range(LIMIT)
    ]
    archive.add_points([(record.uid, point) for point in points])
    archive.close()


def measure_tabs(bench: Bench, folder: Path) -> None:
    desk = open_desk(launch_server(folder / "tabs"))
    for number in range(RUNS):
        submit(desk.kube, f"finished-{number}", "print(1)")
    for number in range(RUNS):
        desk.wait_for(f"finished-{number}", lambda job: job["state"] == "Complete")
    with watching(bench, desk) as people:
        _measure_hidden_tab(bench, people)
        _measure_idle_tabs(bench, desk, people)
        _measure_ranks(bench, desk, people)
    desk.end_jobs()
    end(desk)


def _measure_hidden_tab(bench: Bench, people: People) -> None:
    page = people.open("#/jobs")
    expect(page.locator(".connection")).to_have_text("Live")
    page.evaluate(HIDE, True)
    page.wait_for_timeout(11_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(HIDDEN_SECONDS * 1000)
    expect(page.locator(".connection")).to_have_text("Paused")
    bench.check("requests of a hidden tab", [len(asked)], 0, "", anchor=f"{HIDDEN_SECONDS} s, after its first 11 s")
    page.context.close()


def _measure_idle_tabs(bench: Bench, desk: Desk, people: People) -> None:
    before = cpu_seconds([desk.server.pid])
    time.sleep(IDLE_SECONDS)
    without = _count_percent(desk, before)
    pages = [people.open("#/jobs")]
    for _ in range(TABS - 1):
        pages.append(pages[0].context.new_page())
        pages[-1].goto(pages[0].url)
    for page in pages:
        expect(page.locator(".connection")).to_have_text(re.compile("^(Live|Every 5 s)$"))
    live = sum(page.locator(".connection").inner_text() == "Live" for page in pages)
    assert live == STREAMS, f"{live} tabs have a stream"
    pages[0].wait_for_timeout(5_000)
    before = cpu_seconds([desk.server.pid])
    pages[0].wait_for_timeout(IDLE_SECONDS * 1000)
    spent = _count_percent(desk, before)
    anchor = f"{RUNS} jobs; {live} tabs with a stream; without any tab {without:.1f} %"
    bench.check(f"CPU of the server with {TABS} idle tabs", [spent], 10, " % of a core", anchor=anchor)
    pages[0].context.close()


def _count_percent(desk: Desk, before: float) -> float:
    """Of a core."""
    return (cpu_seconds([desk.server.pid]) - before) / IDLE_SECONDS * 100


def _measure_ranks(bench: Bench, desk: Desk, people: People) -> None:
    submit(desk.kube, "wide", "import time; time.sleep(600)", nodes=RANKS)
    desk.wait_for("wide", lambda job: job["state"] == "Running")
    page = open_page(people, f"{desk.find_address('wide')}?tab=ranks")
    found = [load_again(page, "rank") for _ in range(RUNS)]
    bench.check(f"first rows of {RANKS} ranks", found, None, " ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long lines are followed (default: %(default)g)"
    )
    options = parser.parse_args()
    toolbox = Toolbox()
    found = toolbox.find_browser()
    if found is None:
        print(toolbox.why_missing(CHROMIUM), file=sys.stderr)
        return 1
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as name:
        folder = Path(name)
        (folder / "many").mkdir()
        # Playwright has an event loop in this thread.
        asyncio.run(history.fill(folder / "many", MANY_JOBS))
        add_curves(folder / "many")
        expect.set_options(timeout=PATIENCE * 1000)
        with sync_playwright() as driver:
            bench = Bench(launch(driver, found), report)
            measure_first_paint(bench, folder)
            measure_many_jobs(bench, folder)
            measure_tabs(bench, folder)
            measure_logs(bench, folder, options.seconds)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
