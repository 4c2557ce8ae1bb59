"""Text of jobs is text: it can neither become markup nor hide or disguise anything."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def open_hostile(people: People, desk: Desk, more: str = "") -> Page:
    desk.wait_for(jobs.HOSTILE, lambda job: job["state"] == "Failed")
    page = people.open(desk.find_address(jobs.HOSTILE) + more)
    page.get_by_role("log").get_by_text("ValueError").wait_for()
    return page


def test_markup_is_shown_as_it_was_printed(people: People, desk: Desk) -> None:
    page = open_hostile(people, desk)
    expect(page.get_by_role("region", name="The first failure").get_by_role("heading")).to_contain_text(jobs.MARKUP)
    page.get_by_role("log").evaluate("(box) => { box.scrollTop = 0; }")
    expect(page.get_by_role("log")).to_contain_text(jobs.MARKUP)
    assert page.locator("main img, main script").count() == 0
    for address in ("#/", "#/jobs", "#/history"):
        other = people.open(address)
        expect(other.get_by_role("link", name=jobs.HOSTILE).first).to_be_visible()
        assert other.locator("main img, main script").count() == 0


def test_the_last_line_of_standard_output_stands_once_and_before_the_error(people: People, desk: Desk) -> None:
    """However busy the machine was: the shim reads two pipes, and a page that comes again asks again."""
    page = open_hostile(people, desk)
    shown = page.locator(".line .text").all_inner_texts()
    last = [number for number, text in enumerate(shown) if text == "the last line"]
    error = [number for number, text in enumerate(shown) if text.startswith("ValueError")]
    assert (len(last), len(error)) == (1, 1)
    assert last < error


def test_control_and_bidi_characters_are_visible(people: People, desk: Desk) -> None:
    page = open_hostile(people, desk)
    page.get_by_role("log").evaluate("(box) => { box.scrollTop = 0; }")
    line = page.locator(".line", has_text="reversed").locator(".text")
    expect(line).to_contain_text("<U+202E>reversed<U+202C> zero<U+200B>width")
    expect(line).to_contain_text("␛]0;title␇ nul ␀ bell ␇")
    hidden = page.get_by_role("log").get_by_text("hidden", exact=True)
    assert hidden.evaluate("(element) => getComputedStyle(element).backgroundColor") == "rgba(0, 0, 0, 0)"
    expect(page.get_by_role("log")).to_contain_text("broken")


def test_a_line_of_a_megabyte_is_cut_until_it_is_asked_for(people: People, desk: Desk) -> None:
    page = open_hostile(people, desk, "?find=xxxxx")
    page.get_by_role("searchbox").press("Enter")
    line = page.locator(".line.current .text")
    assert len(line.inner_text()) < 5000
    more = page.get_by_role("button", name="show all")
    size = int(more.inner_text().split()[3].replace(",", ""))
    more.click()
    page.wait_for_function("() => document.querySelector('.line.whole .text').textContent.length > 100000")
    assert size <= len(page.locator(".line.whole .text").inner_text()) + 1


def test_metrics_may_have_any_name_and_value(people: People, desk: Desk) -> None:
    page = open_hostile(people, desk)
    expect(page.locator(".metrics")).to_contain_text("__proto__")
    expect(page.locator(".metrics")).to_contain_text("huge")


def test_hostile_addresses_are_only_addresses(people: People) -> None:
    for address in (
        "#/job/%3Cimg%20src=x%3E/%2e%2e%2f/__proto__",
        "#/jobs?state=%3Cscript%3E&sort=__proto__&label=__proto__&q=%00",
        "#/%E0%A4%A",
        "#/jobs?since=999999999999999999d",
        "#/history?ns=..%2f..&name=%3Cb%3E&state=no",
    ):
        page = people.open(address)
        expect(page.get_by_role("main")).to_be_visible()
        assert page.locator("main img, main script").count() == 0
