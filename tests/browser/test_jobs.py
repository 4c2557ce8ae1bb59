"""The table of jobs: everything is found, the address says what is shown, and much can be done at once."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def list_names(page: Page) -> list[str]:
    return page.locator("td.col-name a").all_inner_texts()


def test_all_jobs_are_shown_with_why_they_wait(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.DOOMED, lambda job: job["state"] == "Failed")
    page = people.open("#/jobs")
    waiting = page.get_by_role("row", name=jobs.WAITING)
    expect(waiting).to_contain_text("Pending")
    expect(waiting).to_contain_text("No node fits")
    expect(page.get_by_role("row", name=jobs.DOOMED)).to_contain_text("Failed")
    expect(page.locator(".connection")).to_have_text("Live")


def test_the_address_says_what_is_shown(people: People) -> None:
    page = people.open("#/jobs")
    page.get_by_role("searchbox").fill(f"{jobs.FINISHED}-0")
    expect(page.get_by_text("10 jobs")).to_be_visible()
    page.get_by_role("button", name="Complete").click()
    expect(page).to_have_url(re.compile(r"#/jobs\?q=finished-0&state=Complete$"))
    page.get_by_role("button", name="Name", exact=True).click()
    expect(page.locator("td.col-name a").first).to_have_text(f"{jobs.FINISHED}-00")
    other = people.open(page.url[page.url.index("#") :])
    expect(other.locator("td.col-name a").first).to_have_text(f"{jobs.FINISHED}-00")
    assert list_names(other) == list_names(page)


def test_filters_by_label_and_runtime(people: People) -> None:
    page = people.open("#/jobs?label=team%3Dnlp&runtime=once")
    for name in (jobs.DOOMED, jobs.HOSTILE):
        expect(page.get_by_role("link", name=name)).to_be_visible()
    expect(page.get_by_role("link", name=jobs.TALKER)).to_have_count(0)
    page.get_by_role("button", name="Remove the filter team=nlp").click()
    expect(page).to_have_url(re.compile(r"#/jobs\?runtime=once$"))
    page = people.open("#/jobs?label=team%3Dother")
    expect(page.get_by_text("No job matches these filters.")).to_be_visible()
    page.get_by_role("link", name="Show all jobs").click()
    expect(page.locator("td.col-name a").first).to_be_visible()


def test_everything_can_be_done_by_keyboard(people: People) -> None:
    page = people.open("#/jobs?sort=name")
    expect(page.locator("td.col-name a").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = list_names(page)[1]
    expect(page.get_by_role("link", name=second, exact=True)).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("jk?x")
    expect(page.get_by_role("searchbox")).to_have_value("jk?x")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_what_is_done_to_many_is_planned_confirmed_and_reported(people: People, desk: Desk) -> None:
    names = [f"bulk-{number}" for number in range(3)]
    for name in names:
        jobs.submit(desk.kube, name, "import time; time.sleep(600)")
    page = people.open("#/jobs?q=bulk-&sort=name")
    expect(page.locator("td.col-name a")).to_have_count(3)
    page.get_by_role("checkbox", name="Select all 3 jobs").check()
    page.get_by_role("toolbar").get_by_role("button", name="Suspend").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The workers of these 3 jobs end")
    dialog.get_by_role("button", name="Suspend 3 jobs").click()
    expect(dialog).to_contain_text("3 of 3 done, 0 failed")
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.locator("td.col-state", has_text="Suspended")).to_have_count(3)
    page.get_by_role("checkbox", name="Select bulk-1").check()
    page.get_by_role("toolbar").get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume 1 job").click()
    expect(page.get_by_role("dialog")).to_contain_text("resumed")
    page.keyboard.press("Escape")
    page.get_by_role("checkbox", name="Select all 3 jobs").check()
    page.get_by_role("toolbar").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 job stays as it is, because of its state")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 3 jobs").click()
    expect(page.get_by_role("dialog")).to_contain_text("3 of 3 done, 0 failed")
    page.keyboard.press("Escape")
    expect(page.get_by_text("No job matches these filters.")).to_be_visible()


def test_what_was_deleted_by_somebody_else_fails_with_its_reason(people: People, desk: Desk) -> None:
    jobs.submit(desk.kube, "taken-away", "import time; time.sleep(600)")
    page = people.open("#/jobs?q=taken-away")
    page.get_by_role("checkbox", name="Select taken-away").check()
    page.get_by_role("toolbar").get_by_role("button", name="Suspend").click()
    desk.rest.delete("/api/v1/jobs/taken-away?namespace=default")
    expect(page.get_by_text("0 jobs")).to_be_attached()
    page.get_by_role("dialog").get_by_role("button", name="Suspend 1 job").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 of 1 done, 1 failed")
    expect(page.get_by_role("dialog").locator(".result.failed")).to_contain_text("taken-away")


def test_columns_can_be_hidden(people: People) -> None:
    page = people.open("#/jobs")
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="Runtime").uncheck()
    page.get_by_role("checkbox", name="Restarts").check()
    expect(page.get_by_role("columnheader", name="Runtime")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("columnheader", name="Restarts")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Runtime")).to_have_count(0)
