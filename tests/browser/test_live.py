"""The live connection: a server that is killed, tabs that are hidden, more tabs than connections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk import Desk, People, read_owner_token
from tests.browser.jobs import submit
from tests.support.server import launch_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NUMBERS = """
import time
for number in range(1_000_000):
    print("number", number, flush=True)
    time.sleep(0.001)
"""


def test_after_a_killed_server_every_line_is_there_once(browser: Browser, tmp_path: Path) -> None:
    server = launch_server(tmp_path / "home")
    desk = Desk(server, {"owner": read_owner_token(server.home)})
    people = People(browser, desk)
    try:
        submit(desk.kube, "numbers", NUMBERS)
        desk.wait_for("numbers", lambda job: job["state"] == "Running")
        page = people.open(desk.find_address("numbers"))
        expect(page.locator(".line").last).to_be_visible()
        page.get_by_role("searchbox").fill("typed text")
        before = save_numbers(page)
        server.kill()
        expect(page.locator(".connection")).to_have_text("Disconnected")
        server = desk.server = launch_server(tmp_path / "home")
        expect(page.locator(".connection")).to_have_text("Live", timeout=30_000)
        while (numbers := save_numbers(page))[-1] < before[-1] + 2_000:
            page.wait_for_timeout(200)
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[0] <= before[0]
        expect(page.get_by_role("searchbox")).to_have_value("typed text")
        assert not [complaint for complaint in people.close() if "console" not in complaint]
        desk.end_jobs()
    finally:
        people.close()
        assert server.stop() == 0


def save_numbers(page: Page) -> list[int]:
    """Those in the loaded lines, in their order."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").click()
    return [int(number) for number in re.findall(r" number (\d+)$", download.value.path().read_text(), re.MULTILINE)]


def test_six_tabs_are_all_current(people: People) -> None:
    first = people.open("#/jobs")
    pages = [first]
    for _ in range(5):
        page = first.context.new_page()
        page.goto(first.url)
        pages.append(page)
    words = []
    for page in pages:
        expect(page.locator(".connection")).to_have_text(re.compile("^(Live|Every 5 s)$"), timeout=10_000)
        expect(page.locator("td.col-name a").first).to_be_visible()
        words.append(page.locator(".connection").inner_text())
    assert words.count("Live") == 4
    # A tab that is closed makes room for another.
    pages[words.index("Live")].close()
    left = [page for page in pages if not page.is_closed()]
    for _ in range(100):
        if [page.locator(".connection").inner_text() for page in left].count("Live") == 4:
            return
        left[0].wait_for_timeout(100)
    raise AssertionError("no other tab became live")
