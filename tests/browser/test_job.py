"""The page of one job: why, how it failed, ranks, logs, events; live, afterwards and when it was deleted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def is_second_attempt(job: dict[str, Any]) -> bool:
    return job["attempt"] == 1 and job["state"] == "Running" and job["progress"] is not None


def open_talker(people: People, desk: Desk, more: str = "") -> Page:
    page = people.open(find_talker(desk) + more)
    page.get_by_role("log").get_by_text(re.compile(r"^step \d+$")).last.wait_for()
    return page


def find_talker(desk: Desk) -> str:
    desk.wait_for(jobs.TALKER, is_second_attempt)
    return desk.find_address(jobs.TALKER)


def go_to_beginning(page: Page) -> None:
    page.get_by_role("button", name="Go to …").click()
    page.get_by_role("button", name="Beginning").click()
    page.keyboard.press("Escape")


def read_last_step(page: Page) -> int:
    return int(page.locator(".line .text", has_text=re.compile(r"^step \d+")).last.inner_text().split()[1])


def test_a_running_job_is_followed_across_its_restart(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    first = read_last_step(page)
    page.wait_for_function(
        "(least) => +[...document.querySelectorAll('.line .text')].at(-1).textContent.split(' ')[1] > least",
        arg=first + 5,
    )
    log = page.get_by_role("log")
    go_to_beginning(page)
    expect(log).to_contain_text("rank 1 begins attempt 0")
    expect(log.locator(".mark-attempt").last).to_contain_text("1")
    expect(log).to_contain_text("rank 1 begins attempt 1")
    expect(page.locator(".reported")).to_contain_text("accuracy")
    expect(page.locator(".fact-restarts")).to_contain_text("1 of at most 6")


def test_where_somebody_reads_does_not_move(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    log = page.get_by_role("log")
    go_to_beginning(page)
    expect(log).to_contain_text("begins attempt 0")
    log.evaluate("(box) => { box.scrollTop = 90; }")
    expect(page.get_by_role("button", name="Go to the end")).to_contain_text("new lines")
    assert log.evaluate("(box) => box.scrollTop") == 90
    page.get_by_role("button", name="Go to the end").click()
    expect(page.get_by_role("button", name="Go to the end")).to_have_count(0)
    assert log.evaluate("(box) => box.scrollHeight - box.scrollTop - box.clientHeight") < 8


def test_all_lines_are_searched_and_a_line_has_an_address(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    page.keyboard.press("/")
    page.keyboard.type("begins attempt 1")
    expect(page.locator(".hits")).to_have_text("0 of 2")
    page.keyboard.press("Enter")
    expect(page.locator(".hits")).to_have_text("1 of 2")
    expect(page.locator(".line.current")).to_contain_text("begins attempt 1")
    expect(page.locator(".line.current .sought")).to_have_text("begins attempt 1")
    page.get_by_role("button", name="List").click()
    page.get_by_role("list", name="List").get_by_role("button").last.click()
    expect(page.locator(".hits")).to_have_text("2 of 2")
    page.locator(".line.current .gutter").click()
    expect(page).to_have_url(re.compile("line=1%7Enode%7E"))
    other = people.open(page.url[page.url.index("#") :].replace("find=begins+attempt+1&", ""))
    expect(other.locator(".line.target")).to_contain_text("begins attempt 1")
    expect(other.locator(".line.target")).to_be_in_viewport()


def test_patterns_are_those_of_the_server(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    page.get_by_role("button", name="regular expression").click()
    page.get_by_role("searchbox").fill("^rank [01] begins attempt 1$")
    expect(page.locator(".hits")).to_have_text("0 of 2")
    page.get_by_role("searchbox").fill("rank (")
    expect(page.get_by_role("alert")).to_contain_text("missing )")


def test_every_part_of_a_log_is_a_place_to_go(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    log = page.get_by_role("log")
    page.get_by_role("button", name="Go to …").click()
    page.get_by_role("button", name="Beginning").click()
    expect(log).to_contain_text("begins attempt 0")
    expect(page.get_by_role("button", name="Go to the end")).to_be_visible()
    page.get_by_role("slider", name="Position").fill("100")
    expect(log).to_contain_text(re.compile(r"step \d+"))
    page.get_by_role("button", name="Go", exact=True).click()
    page.get_by_role("button", name="End", exact=True).click()
    expect(page.get_by_role("button", name="Go to the end")).to_have_count(0)


def test_all_lines_can_be_downloaded(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    text = download.value.path().read_text()
    assert text.count("begins attempt") == 4
    assert "1 node/1 step 0\n" in text


def test_one_rank_or_one_attempt_can_be_chosen(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    page.get_by_role("combobox", name="Attempts").select_option("0")
    log = page.get_by_role("log")
    expect(log).to_contain_text("rank 0 begins attempt 0")
    expect(log).not_to_contain_text("step")
    page.get_by_role("combobox", name="Attempts").select_option("")
    page.get_by_role("combobox", name="Ranks").select_option("1")
    page.locator(".line .text", has_text=re.compile(r"^step \d+")).last.wait_for()
    go_to_beginning(page)
    expect(log).to_contain_text("rank 1 begins")
    expect(log).not_to_contain_text("rank 0 begins")


def test_a_progress_bar_shows_its_last_form(people: People, desk: Desk) -> None:
    page = open_talker(people, desk, "?find=%25+done")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator(".line.current .text")).to_have_text("100 % done")


def test_ranks_lead_to_their_logs(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    page.get_by_role("link", name="Ranks").click()
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_role("link", name="Rank 1", exact=True).click()
    expect(page.get_by_role("combobox", name="Ranks")).to_have_value("1")


def test_events_come_with_the_live_connection(people: People, desk: Desk) -> None:
    page = people.open(f"{find_talker(desk)}?tab=events")
    expect(page.get_by_role("row", name="RankFailed").first).to_contain_text("Warning")


def test_a_failure_shows_the_error_and_its_last_words(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.DOOMED, lambda job: job["state"] == "Failed")
    page = people.open(desk.find_address(jobs.DOOMED))
    verdict = page.get_by_role("region", name="The first failure")
    expect(verdict.get_by_role("heading")).to_contain_text("RuntimeError: the gradients are not numbers")
    expect(verdict.locator("pre")).to_contain_text("in advance")
    verdict.get_by_role("link", name="Log of this rank").click()
    expect(page.get_by_role("log")).to_contain_text("RuntimeError: the gradients are not numbers")


def test_the_failure_of_an_earlier_attempt_is_one_line_until_it_is_opened(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    verdict = page.locator("details.verdict")
    expect(verdict.locator("summary")).to_contain_text("Attempt 0 failed:")
    expect(verdict.locator("pre")).to_be_hidden()
    height = verdict.bounding_box()
    assert height is not None and height["height"] < 50
    verdict.locator("summary").click()
    expect(verdict.locator("pre")).to_contain_text("lost connection to its peer")
    expect(verdict).to_contain_text("Rank 1 · Attempt 0")
    expect(page.get_by_role("region", name="Why")).not_to_contain_text("lost connection")


def test_the_step_stands_beside_the_progress_and_nowhere_else(people: People, desk: Desk) -> None:
    page = open_talker(people, desk)
    expect(page.locator(".reported .bar")).to_contain_text(re.compile(r"step [\d,]+ of 1,000"))
    expect(page.locator(".reported .metrics")).to_contain_text("accuracy")
    expect(page.locator(".reported .metrics")).not_to_contain_text("current_step")


def test_a_job_that_has_not_begun_has_printed_nothing(people: People, desk: Desk) -> None:
    jobs.submit(desk.kube, "held", "print(1)", suspend=True)
    desk.wait_for("held", lambda job: job["state"] == "Suspended")
    page = people.open(desk.find_address("held"))
    expect(page.get_by_text("Nothing has been printed.")).to_be_visible()
    expect(page.get_by_role("region", name="Why")).to_contain_text("has been suspended for")


def test_a_waiting_job_says_why(people: People, desk: Desk) -> None:
    page = people.open(desk.find_address(jobs.WAITING))
    why = page.get_by_role("region", name="Why")
    expect(why).to_contain_text("No node fits")
    expect(why).to_contain_text("9000")


def test_the_record_of_a_deleted_job_fills_the_same_page(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.DELETED, lambda job: job["state"] == "Complete")
    address = desk.find_address(jobs.DELETED)
    page = people.open(address)
    expect(page.get_by_role("log")).to_contain_text("the only line")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 job").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 of 1 done")
    page.keyboard.press("Escape")
    for shown in (page, people.open(address)):
        expect(shown.get_by_text("Record", exact=True)).to_be_visible()
        expect(shown.get_by_role("log")).to_contain_text("the only line")
        expect(shown.locator(".fact-deleted")).to_be_visible()
        expect(shown.locator(".actions button")).to_have_text(["Run again", "Delete record"])
    jobs.submit(desk.kube, jobs.DELETED, "print('another job of the same name')")
    old = people.open(address)
    expect(old.get_by_role("log")).to_contain_text("the only line")
    expect(old.get_by_text("Record", exact=True)).to_be_visible()


def test_a_job_that_never_was_is_not_found(people: People) -> None:
    page = people.open("#/job/default/nobody/4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("GET /api")
    expect(page.locator(".toast")).to_have_count(0)
    page.get_by_role("link", name="Search the history for this name").click()
    expect(page.get_by_text("There are no records.")).to_be_visible()
