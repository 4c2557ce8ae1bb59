"""Curves of what a job reports and uses, while it runs and from its record; attempts; records that run again or go."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = pytest.mark.browser

PATIENCE_MS = 60_000
REPORTER = "reporter"
_REPORT = """
import trainmaster
for step in range(1, 4):
    trainmaster.report(step=step, total=3, loss=1 / step)
"""


def wait_for_curve(page: Page, name: str) -> None:
    """The canvas has something of it: the label says which numbers."""
    page.locator(".chart canvas").first.wait_for(timeout=PATIENCE_MS)
    expect(page.get_by_role("img", name=re.compile(f"^{name}: first "))).to_be_visible(timeout=PATIENCE_MS)


def test_a_running_job_is_drawn_and_measured(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.TALKER, lambda job: job["attempt"] == 1 and job["progress"] is not None)
    page = people.open(f"{desk.find_address(jobs.TALKER)}?tab=curves")
    wait_for_curve(page, "loss")
    page.get_by_role("checkbox", name="Logarithmic").check()
    page.get_by_role("button", name="Time", exact=True).click()
    expect(page).to_have_url(re.compile("x=time"))
    expect(page).to_have_url(re.compile("log=1"))
    page.locator(".card", has_text="accuracy").get_by_text("All values").click()
    expect(
        page.get_by_role("region", name="accuracy: All values").get_by_role("cell", name="0.871").first
    ).to_be_visible()
    # The server measures every ten seconds.
    expect(page.get_by_role("img", name=re.compile("^CPU, cores: Rank 0 "))).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("img", name=re.compile("^Memory: Rank 0 .*MiB, Rank 1 "))).to_be_visible()


def test_ranks_show_what_they_use_and_attempts_why_they_ended(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.TALKER, lambda job: job["attempt"] == 1 and job["state"] == "Running")
    page = people.open(f"{desk.find_address(jobs.TALKER)}?tab=ranks")
    expect(page.get_by_role("columnheader", name="CPU, cores")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("row", name=re.compile("MiB")).first).to_be_visible(timeout=PATIENCE_MS)
    first = page.locator(".attempts li").first
    expect(first).to_contain_text("lost connection to its peer")
    first.get_by_role("link", name="Attempt 0").click()
    expect(page.get_by_role("combobox", name="Attempts")).to_have_value("0")


def test_metrics_of_any_name_and_value_are_drawn(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.HOSTILE, lambda job: job["state"] == "Failed")
    page = people.open(f"{desk.find_address(jobs.HOSTILE)}?tab=curves")
    for name in ("__proto__", "constructor", "huge"):
        expect(page.get_by_role("img", name=re.compile(f"^{name}: first "))).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("img", name="none: no number was reported")).to_be_visible()
    expect(page.locator(".card", has_text=jobs.MARKUP)).to_have_count(1)
    assert page.locator("main article img, main script").count() == 0


def test_a_deleted_job_has_its_curves_runs_again_and_can_be_forgotten(people: People, desk: Desk) -> None:
    jobs.submit(desk.kube, REPORTER, _REPORT, runtime="once")
    desk.wait_for(REPORTER, lambda job: job["state"] == "Complete")
    address = desk.find_address(REPORTER)
    desk.rest.delete(f"/api/v1/jobs/{REPORTER}?namespace=default")
    page = people.open(f"{address}?tab=curves")
    wait_for_curve(page, "loss")
    page.goto(f"{desk.page_url}#/history?q={REPORTER}")
    row = page.get_by_role("row", name=REPORTER)
    expect(row).to_have_count(1)
    expect(row).to_contain_text("team=nlp")
    row.get_by_role("button", name=f"Run again: {REPORTER}").click()
    page.get_by_role("textbox", name="Name of the new job").fill(f"{REPORTER}-new")
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_role("heading", name=f"{REPORTER}-new")).to_be_visible(timeout=PATIENCE_MS)
    page.goto(desk.page_url + address)
    page.get_by_role("button", name=f"Delete record: {REPORTER}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete record").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    expect(page.get_by_role("link", name=REPORTER, exact=True)).to_have_count(0)
