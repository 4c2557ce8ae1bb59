"""The queue, the nodes, the runtimes, the settings and the doctor: what each caller sees of them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PATIENCE = 30_000
SHOWN = ".empty:not([aria-live]), tbody tr, .problem, pre, .pairs"
"""What a page has when it has loaded."""
PAGES = ("#/queue", "#/nodes", "#/runtimes", "#/runtime/plain", "#/settings", "#/tenants")


def test_the_queue_says_what_waits_and_why(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.WAITING, lambda job: job["state"] == "Pending" and bool(job["message"]))
    page = people.open("#/queue")
    line = page.locator(".queue li").filter(has_text=jobs.WAITING)
    expect(line).to_contain_text("asks for 9000 CPUs", timeout=PATIENCE)
    line.get_by_role("link").click()
    expect(page.get_by_role("heading", name=jobs.WAITING)).to_be_visible(timeout=PATIENCE)


def test_a_node_shows_what_is_taken_and_what_runs_there(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.TALKER, lambda job: job["state"] == "Running")
    page = people.open("#/nodes")
    runs = page.get_by_role("main").get_by_role("link", name=f"default/{jobs.TALKER}")
    expect(runs).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("progressbar", name="CPU")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("Ready: True")
    page.goto(f"{desk.page_url}#/nodes/no-such-node")
    expect(page.get_by_role("main")).to_contain_text("There is no node with this name", timeout=PATIENCE)


def test_gpus_show_who_has_leased_them(people: People, desk: Desk) -> None:
    jobs.submit(desk.kube, "leaser", "import time; time.sleep(600)", gpus=1)
    page = people.open("#/queue")
    leased = page.locator("a.gpu-leased")
    expect(leased).to_contain_text("default/leaser", timeout=PATIENCE)
    expect(page.locator(".gpu-map .gpu-free")).to_have_count(jobs.GPUS - 1)
    leased.click()
    expect(page.get_by_role("heading", name="leaser")).to_be_visible(timeout=PATIENCE)
    desk.rest.delete("/api/v1/jobs/leaser?namespace=default")


def test_a_runtime_shows_its_yaml_and_its_users(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.TALKER, lambda job: job["state"] == "Running")
    page = people.open("#/runtimes")
    page.get_by_role("link", name="plain", exact=True).click()
    expect(page.locator("pre")).to_contain_text("kind: ClusterTrainingRuntime", timeout=PATIENCE)
    expect(page.get_by_role("link", name=f"default/{jobs.TALKER}")).to_be_visible()


def test_settings_show_where_they_come_from_and_the_doctor_what_it_finds(people: People) -> None:
    page = people.open("#/settings")
    settings = page.get_by_role("region", name="Settings of the server")
    expect(settings).to_contain_text("rest.enabled", timeout=PATIENCE)
    page.get_by_role("searchbox", name="Search settings").fill("node.gpus")
    expect(settings.locator("tbody tr")).to_have_count(1)
    expect(settings).to_contain_text("environment TRAINMASTER_NODE_GPUS")
    page.get_by_role("searchbox", name="Search settings").fill("no-such-setting")
    expect(page.get_by_text("No setting matches")).to_be_visible()
    expect(page.locator(".doctor-findings")).to_contain_text("isolation", timeout=PATIENCE)


def test_the_doctor_looks_at_a_job(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.DOOMED, lambda job: job["state"] == "Failed")
    page = people.open(desk.find_address(jobs.DOOMED))
    page.get_by_role("button", name="Check this job").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("nobody set a TTL", timeout=PATIENCE)
    expect(dialog).to_contain_text("kubectl annotate trainjob doomed")


def test_a_tenant_finds_nothing_of_others_on_any_page(people: People, desk: Desk) -> None:
    desk.wait_for(jobs.WAITING, lambda job: job["state"] == "Pending" and bool(job["message"]))
    page = people.open("#/", who="ann")
    nav = page.get_by_role("navigation", name="Pages")
    expect(nav.get_by_role("link", name="Queue")).to_be_visible()
    for name in ("Nodes", "Tenants", "Settings"):
        expect(nav.get_by_role("link", name=name, exact=True)).to_have_count(0)
    for address in PAGES:
        page.goto(desk.page_url + address)
        expect(page.locator(SHOWN).first).to_be_visible(timeout=PATIENCE)
        text = page.get_by_role("main").inner_text()
        for secret in (jobs.TALKER, jobs.DOOMED, jobs.WAITING):
            assert secret not in text, address


def test_on_a_narrow_screen_the_pages_open_from_one_button(people: People) -> None:
    page = people.open("#/jobs", width=360)
    button = page.get_by_role("navigation", name="Pages").get_by_role("button", name="Jobs")
    button.press("Enter")
    queue = page.get_by_role("link", name="Queue")
    expect(queue).to_be_visible()
    page.keyboard.press("Escape")
    expect(queue).to_have_count(0)
    expect(button).to_be_focused()
    button.press("Enter")
    queue.press("Enter")
    expect(page).to_have_url(re.compile(r"#/queue$"))
    expect(page.get_by_role("heading", name="Queue")).to_be_visible(timeout=PATIENCE)
    expect(queue).to_have_count(0)
