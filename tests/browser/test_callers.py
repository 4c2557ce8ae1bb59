"""What a tenant and a read-only login see, and what they are not offered."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PAGES = ("#/", "#/jobs", "#/history", "#/runtimes")


def test_a_tenant_sees_nothing_of_others(people: People, desk: Desk) -> None:
    uid = desk.read_job(jobs.TALKER)["uid"]
    for address in (*PAGES, "#/jobs?ns=default", "#/history?ns=default", f"#/job/default/{jobs.TALKER}/{uid}"):
        page = people.open(address, who="ann")
        expect(page.locator(".empty:not([aria-live]), tbody tr, .problem, .counts").first).to_be_visible()
        text = page.get_by_role("main").inner_text()
        assert jobs.DOOMED not in text
        assert jobs.WAITING not in text
        assert "gradients" not in text


def test_a_tenant_has_jobs_and_a_quota(people: People, desk: Desk) -> None:
    rest = desk.connect("ann")
    code = "import time; print('my own'); time.sleep(600)"
    rest.create("/api/v1/jobs", {"name": "mine", "runtime": "plain", "code": code})
    page = people.open("#/", who="ann")
    expect(page.get_by_role("link", name="ann/mine").first).to_be_visible()
    expect(page.get_by_role("heading", name="Quota")).to_be_visible()
    page.get_by_role("link", name="ann/mine").first.click()
    expect(page.get_by_role("log")).to_contain_text("my own")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 job").click()
    # The job's page becomes that of its record, and what was done can still be read.
    expect(page.get_by_text("Record", exact=True)).to_be_attached()
    expect(page.get_by_role("dialog")).to_contain_text("1 of 1 done")


def test_a_read_only_login_is_offered_nothing_that_changes(people: People, desk: Desk) -> None:
    page = people.open("#/jobs", read_only=True)
    expect(page.get_by_text("Read-only")).to_be_visible()
    expect(page.locator("td.col-name a").first).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)
    page.goto(desk.page_url + desk.find_address(jobs.TALKER))
    expect(page.get_by_role("heading", name=jobs.TALKER)).to_be_visible()
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


def test_a_revoked_token_ends_a_page_that_nobody_touches(people: People, desk: Desk) -> None:
    desk.add_tenant("bob")
    page = people.open("#/jobs", who="bob")
    expect(page.locator(".connection")).to_have_text("Live")
    desk.rest.create("/api/v1/tenants/bob/rotate", {})
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()


def test_a_revoked_token_ends_a_page_with_its_next_request(people: People, desk: Desk) -> None:
    desk.add_tenant("carl")
    page = people.open("#/settings", who="carl")
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    expect(page.locator(".connection")).to_have_count(0)
    desk.rest.create("/api/v1/tenants/carl/rotate", {})
    page.get_by_role("link", name="Runtimes").click()
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("token")
    assert page.evaluate("localStorage.getItem('trainmaster.login')") is None
