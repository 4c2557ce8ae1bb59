"""What holds on every page, in both themes and languages: accessible, and wide enough at 360 pixels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LANGUAGES = ("en-US", "ko-KR")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@dataclass(frozen=True)
class Place:
    """A page, and what is open on it."""

    name: str
    address: str
    job: str = ""
    act: Callable[[Page], object] = lambda page: None
    ready: str = "main"


def open_menu(page: Page) -> None:
    page.locator(".right .menu > button").click()


def open_pages(page: Page) -> None:
    """Where the screen is narrow, they are behind a button."""
    button = page.locator("nav.menu > button")
    if button.count():
        button.click()


def add_tenant(page: Page) -> None:
    page.locator(".actions button.main").click()


def check_job(page: Page) -> None:
    page.locator(".doctor button").click()
    page.locator("dialog .doctor-findings, dialog .empty:not([aria-live])").first.wait_for()


def open_evidence(page: Page) -> None:
    page.locator("section > details > summary").last.click()
    page.locator(".evidence .card").first.wait_for()


def open_dialog(page: Page) -> None:
    page.locator(".actions button").last.click()


def open_hits(page: Page) -> None:
    page.locator(".log-search > button").last.click()
    page.locator(".log-hits li").first.wait_for()


def open_checkpoint(page: Page) -> None:
    page.locator("table.files button.link").first.click()


def open_ways(page: Page) -> None:
    page.locator(".log-tools .menu > button").click()


def select_row(page: Page) -> None:
    page.locator("td.box input").first.check()


PLACES = (
    Place("overview", "#/", ready=".counts"),
    Place("jobs", "#/jobs", ready="td.col-name a"),
    Place("selection", "#/jobs?q=finished&state=Complete", act=select_row, ready="td.col-name a"),
    Place("no job", "#/jobs?q=nothing-like-this", ready=".empty"),
    Place("running", "", jobs.TALKER, ready=".line"),
    Place("search", "?find=step", jobs.TALKER, ready=".line"),
    Place("hits", "?find=step", jobs.TALKER, act=open_hits, ready=".line"),
    Place("ways", "", jobs.TALKER, act=open_ways, ready=".line"),
    Place("ranks", "?tab=ranks", jobs.TALKER, ready="tbody tr"),
    Place("evidence", "?tab=ranks", jobs.TALKER, act=open_evidence, ready="tbody tr"),
    Place("curves", "?tab=curves&smooth=0.6", jobs.TALKER, ready=".chart canvas"),
    Place("events", "?tab=events", jobs.TALKER, ready="tbody tr"),
    Place("checkpoints", "?tab=checkpoints", jobs.TALKER, act=open_checkpoint, ready="tbody tr"),
    Place("failed", "", jobs.DOOMED, ready=".verdict"),
    Place("hostile", "", jobs.HOSTILE, ready=".line"),
    Place("waiting", "", jobs.WAITING, ready=".explanation"),
    Place("dialog", "", jobs.TALKER, act=open_dialog, ready=".actions button"),
    Place("menu", "#/runtimes", act=open_menu, ready="tbody tr"),
    Place("history", "#/history", ready="tbody tr"),
    Place("runtimes", "#/runtimes", ready="tbody tr"),
    Place("runtime", "#/runtime/plain", ready="pre"),
    Place("queue", "#/queue", act=open_pages, ready=".queue li"),
    Place("nodes", "#/nodes", ready=".gpu-map"),
    Place("tenants", "#/tenants", ready="tbody tr"),
    Place("tenant", "#/tenants/ann", ready=".quota"),
    Place("new tenant", "#/tenants", act=add_tenant, ready="tbody tr"),
    Place("settings", "#/settings", ready=".doctor-findings"),
    Place("doctor", "", jobs.DOOMED, act=check_job, ready=".doctor"),
    Place("no page", "#/nothing"),
)


def go(page: Page, desk: Desk, place: Place) -> None:
    address = (desk.find_address(place.job) if place.job else "") + place.address
    page.goto(desk.page_url + address)
    # The same page with another query would keep what is open on it.
    page.reload()
    page.locator(place.ready).first.wait_for()
    place.act(page)


def find_mistakes(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    options = json.dumps({"runOnly": RULES, "resultTypes": ["violations"]})
    found: dict[str, Any] = page.evaluate(f"axe.run(document, {options})")
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.fixture
def settled(desk: Desk) -> Desk:
    desk.wait_for(jobs.DOOMED, lambda job: job["state"] == "Failed")
    desk.wait_for(jobs.HOSTILE, lambda job: job["state"] == "Failed")
    desk.wait_for(jobs.TALKER, lambda job: job["attempt"] == 1 and job["state"] == "Running")
    return desk


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_hinders_anybody(people: People, settled: Desk, axe: str, language: str) -> None:
    page = people.open("#/", locale=language, reduced_motion="reduce")
    found: dict[str, list[str]] = {}
    for place in PLACES:
        go(page, settled, place)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            if mistakes := find_mistakes(page, axe):
                found[f"{place.name}, {theme}"] = mistakes
    assert found == {}


def test_nothing_hinders_strangers(people: People, settled: Desk, axe: str) -> None:
    page = people.open_stranger()
    page.goto(settled.page_url)
    page.get_by_role("heading", name="With a link").wait_for()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert find_mistakes(page, axe) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_360_pixels_are_enough(people: People, settled: Desk, language: str) -> None:
    page = people.open("#/", width=360, locale=language)
    wide = {}
    for place in PLACES:
        go(page, settled, place)
        width = page.evaluate(
            "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth)"
        )
        if width > 360:
            wide[place.name] = width
    assert wide == {}
