"""Logs in the dashboard: lines as they come, 10,000 a second, and a million; used by `bench.dashboard`."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from bench._page import (
    LINES,
    RUNS,
    UNTIL,
    Bench,
    begin_job,
    end,
    load_again,
    measure_heap,
    measure_longest_task,
    open_page,
    watching,
)
from tests.browser.desk import Desk, People, open_desk
from tests.support.server import launch_server

_CLOCK = """
import time
while True:
    print("at", time.time(), flush=True)
    time.sleep(0.05)
"""
_FLOOD = """
import sys, time
began, number = time.monotonic(), 0
while True:
    due = int((time.monotonic() - began) * 10_000)
    sys.stdout.write("".join(f"line {n:08} {'x' * 60}\\n" for n in range(number, due)))
    sys.stdout.flush()
    number = due
    time.sleep(0.01)
"""
_MANY_LINES = f"""
import sys
for start in range(0, {LINES}, 1000):
    sys.stdout.write("".join(f"line {{n:08}} " + "x" * 85 + "\\n" for n in range(start, start + 1000)))
sys.stdout.flush()
"""

_JUMP = f"""
(share) => ({UNTIL})(
  () => {{
    const field = document.querySelector("#log-go input[type=range]");
    field.value = share;
    field.dispatchEvent(new Event("change", {{bubbles: true}}));
  }},
  () => [...document.querySelectorAll(".log-rows .line .text")].some(
    (one) => Math.abs(Number(one.textContent.split(" ")[1]) / {LINES} - share / 100) < 0.001),
)
"""
_SEARCH = f"""
(text) => ({UNTIL})(
  () => {{
    const field = document.querySelector(".log-search input");
    field.value = text;
    field.dispatchEvent(new Event("input", {{bubbles: true}}));
  }},
  () => [...document.querySelectorAll(".log-rows .line .text")].some((one) => one.textContent.startsWith(text)),
)
"""


def measure_logs(bench: Bench, folder: Path, seconds: float) -> None:
    desk = open_desk(launch_server(folder / "logs"))
    with watching(bench, desk) as people:
        _measure_lateness(bench, desk, people, seconds / 3)
        _measure_flood(bench, desk, people, seconds)
        _measure_million(bench, desk, people)
    desk.end_jobs()
    end(desk)


def _measure_lateness(bench: Bench, desk: Desk, people: People, seconds: float) -> None:
    begin_job(desk, "clock", _CLOCK, lambda state: state == "Running")
    page = open_page(people, desk.find_address("clock"))
    page.locator(".line").first.wait_for()
    page.evaluate("seen.late.length = 0")
    page.wait_for_timeout(seconds * 1000)
    late = sorted(float(one) for one in page.evaluate("seen.late"))
    p99 = late[math.ceil(len(late) * 0.99) - 1]
    bench.check(
        "a line on the screen, p99",
        [p99],
        250,
        " ms",
        anchor=f"{len(late)} lines, p50 {statistics.median(late):.0f} ms",
    )
    desk.rest.delete("/api/v1/jobs/clock?namespace=default")
    page.context.close()


def _measure_flood(bench: Bench, desk: Desk, people: People, seconds: float) -> None:
    begin_job(desk, "flood", _FLOOD, lambda state: state == "Running")
    page = open_page(people, desk.find_address("flood"))
    page.locator(".line").first.wait_for()
    page.evaluate("seen.tasks.length = 0")
    page.wait_for_timeout(seconds * 1000)
    anchor = f"10,000 lines a second for {seconds:.0f} s"
    bench.check("longest task beside many lines", [measure_longest_task(page)], 100, " ms", anchor=anchor)
    bench.check("heap beside many lines", [measure_heap(page)], 100, " MB", anchor=anchor)
    last = int(page.locator(".line .text").last.inner_text().split()[1])
    shown = last / 10_000
    print(f"  the last line shown is that of second {shown:.0f}", flush=True)
    desk.rest.delete("/api/v1/jobs/flood?namespace=default")
    page.context.close()


def _measure_million(bench: Bench, desk: Desk, people: People) -> None:
    begin_job(desk, "million", _MANY_LINES, lambda state: state == "Complete")
    page = open_page(people, desk.find_address("million"))
    anchor = f"{LINES:,} lines"
    found = [load_again(page, "end") for _ in range(RUNS)]
    bench.check("a long log, at its end", found, 500, " ms", anchor=anchor)
    page.get_by_role("button", name="Go to").click()
    shares = [5 + 9 * number for number in range(RUNS)]
    jumps = [float(page.evaluate(_JUMP, share)) for share in shares]
    bench.check("a jump in a long log", jumps, 300, " ms", anchor=anchor)
    searches = [float(page.evaluate(_SEARCH, f"line {LINES // 100 * share + 7:08}")) for share in shares]
    bench.check("a search of a whole long log", searches, 2000, " ms", anchor=anchor)
