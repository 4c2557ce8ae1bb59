"""The live connection: a server that is killed, tabs that are hidden, more tabs than connections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.buffering import buffering_proxy
from tests.browser.desk import HIDE, Desk, People, open_desk
from tests.browser.jobs import submit
from tests.support.server import launch_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

NUMBERS = """
import time
for number in range(1_000_000):
    print("number", number, flush=True)
    time.sleep(0.001)
"""


def test_after_a_killed_server_every_line_is_there_once(browser: Browser, tmp_path: Path) -> None:
    server = launch_server(tmp_path / "home")
    desk = open_desk(server)
    people = People(browser, desk)
    try:
        submit(desk.kube, "numbers", NUMBERS)
        desk.wait_for("numbers", lambda job: job["state"] == "Running")
        page = people.open(desk.find_address("numbers"))
        expect(page.locator(".line").last).to_be_visible()
        page.get_by_role("searchbox").fill("typed text")
        reading = read_in_the_middle(page)
        before = count_number(page.locator(".line .text").last.inner_text())
        server.kill()
        expect(page.locator(".connection")).to_have_text("Disconnected")
        server = desk.server = launch_server(tmp_path / "home")
        expect(page.locator(".connection")).to_have_text("Live", timeout=60_000)
        expect(page.get_by_role("button", name="Go to the end")).to_contain_text("new lines")
        assert page.evaluate(READING) == reading
        expect(page.get_by_role("searchbox")).to_have_value("typed text")
        page.get_by_role("button", name="Go to the end").click()
        while (numbers := save_numbers(page))[-1] < before + 3_000:
            page.wait_for_timeout(200)
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[0] <= before
        assert not [complaint for complaint in people.close() if "console" not in complaint]
        desk.end_jobs()
    finally:
        people.close()
        assert server.stop() == 0


READING = """() => {
  const box = document.querySelector("[role=log]");
  return [box.scrollTop, String(getSelection()), box.querySelector(".line .text").textContent];
}"""


def read_in_the_middle(page: Page) -> list[Any]:
    """Scrolls up and selects some words, as somebody who reads."""
    page.get_by_role("log").evaluate("(box) => { box.scrollTop = box.scrollHeight / 2; }")
    expect(page.get_by_role("button", name="Go to the end")).to_be_visible()
    shown = page.locator(".line .text").nth(20)
    shown.evaluate("(element) => getSelection().selectAllChildren(element)")
    reading: list[Any] = page.evaluate(READING)
    assert reading[1].startswith("number")
    return reading


def count_number(text: str) -> int:
    return int(text.removeprefix("number "))


def save_numbers(page: Page) -> list[int]:
    """Those in the loaded lines, in their order."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").click()
    return [int(number) for number in re.findall(r" number (\d+)$", download.value.path().read_text(), re.MULTILINE)]


def test_ten_windows_are_all_current(people: People, desk: Desk) -> None:
    first = people.open("#/jobs")
    pages = [first]
    for _ in range(9):
        page = first.context.new_page()
        page.goto(first.url)
        pages.append(page)
    words = []
    for page in pages:
        expect(page.locator(".connection")).to_have_text(re.compile("^(Live|Every 5 s)$"))
        expect(page.locator("td.col-name a").first).to_be_visible()
        words.append(page.locator(".connection").inner_text())
    assert words.count("Live") == 4
    submit(desk.kube, "seen-by-all", "print(1)")
    for page in pages:
        expect(page.get_by_role("link", name="seen-by-all")).to_be_visible()
    # A tab that is closed makes room for another.
    pages[words.index("Live")].close()
    left = [page for page in pages if not page.is_closed()]
    for _ in range(300):
        if [page.locator(".connection").inner_text() for page in left].count("Live") == 4:
            return
        left[0].wait_for_timeout(100)
    raise AssertionError("no other tab became live")


def test_a_hidden_tab_asks_for_nothing(people: People) -> None:
    page = people.open_stranger(storage_state=people.open("#/").context.storage_state())
    page.clock.install()
    page.goto(f"{people.door.page_url}#/jobs")
    connection = page.locator(".connection")
    expect(connection).to_have_text("Live")
    page.evaluate(HIDE, True)
    page.clock.fast_forward("00:15")
    expect(connection).to_have_text("Paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.fast_forward("30:00")
    page.clock.fast_forward("30:00")
    assert page.evaluate("document.hidden")
    assert asked == []
    page.evaluate(HIDE, False)
    expect(connection).to_have_text("Live")


def test_a_proxy_that_holds_the_stream_back_is_noticed(people: People, desk: Desk) -> None:
    with buffering_proxy(desk.page_url) as url:
        page = people.open_stranger(base=url)
        page.clock.install()
        page.goto(desk.make_link("owner").replace(desk.page_url, url))
        page.locator("header.top").wait_for()
        page.goto(f"{url}#/jobs")
        connection = page.locator(".connection")
        # The connection may have begun a moment after the time was changed.
        while connection.inner_text() == "Connecting":
            page.clock.fast_forward("00:45")
            page.wait_for_timeout(500)
        expect(connection).to_have_text("Every 5 s")
        expect(page.locator("p.notice")).to_contain_text("proxy")
        expect(page.locator("td.col-name a").first).to_be_visible()
        page.close()
