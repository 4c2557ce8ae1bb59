"""Behind the real nginx, with the lines of docs/dashboard.md: the prefix removed, and kept."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk import Desk, People, open_desk
from tests.browser.jobs import submit
from tests.browser.nginx import PREFIX, read_document, running_nginx
from tests.kube.processes import REPLACED
from tests.support.server import launch_server, start_server
from tools.nginx import NGINX
from tools.toolbox import Toolbox

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SIZE = 3_000_000
"""Of an output: more than nginx keeps in memory."""
# Prints so little that a proxy which collects answers would show nothing for minutes.
CODE = f"""
import os, pathlib, time
(pathlib.Path(os.environ["TRAINMASTER_OUTPUT_DIR"]) / "weights.bin").write_bytes(bytes(range(250)) * {SIZE // 250})
for number in range(100_000):
    print("number", number, flush=True)
    time.sleep(2)
"""
NGINX_READ_TIMEOUT = 60
"""Seconds; nginx's own default of proxy_read_timeout."""


# In place of the package's own: each has nginx in front of it.
@pytest.fixture(scope="module", params=["removed", "kept"])
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    toolbox = Toolbox()
    found = toolbox.find_nginx()
    if found is None:
        pytest.skip(toolbox.why_missing(NGINX))
    written = read_document(request.param)
    home: Path = tmp_path_factory.mktemp("home")
    (home / "config.toml").write_text(written.settings)
    with (
        start_server(home) as server,
        running_nginx(found, server, written.nginx, tmp_path_factory.mktemp("nginx")) as url,
    ):
        desk = open_desk(server)
        desk.front = url
        submit(desk.kube, "counting", CODE)
        desk.wait_for("counting", lambda job: job["state"] == "Running")
        yield desk
        desk.end_jobs()
        if desk.server is not server:
            assert desk.server.stop() == 0


@pytest.fixture
def people(browser: Browser, desk: Desk) -> Iterator[People]:
    people = People(browser, desk)
    yield people
    assert people.close() == []


def log_in(people: People, desk: Desk) -> Page:
    page = people.open_stranger()
    # The address that people type; it leads to the page.
    page.goto(desk.page_url.removesuffix("ui/"))
    page.get_by_label("Token").fill(desk.tokens["owner"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    return page


def test_somebody_logs_in_follows_a_log_and_saves_a_file(people: People, desk: Desk) -> None:
    page = log_in(people, desk)
    assert page.url.startswith(desk.page_url)
    assert [cookie["path"] for cookie in page.context.cookies()] == [f"{PREFIX}/"]
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator(".connection")).to_have_text("Live")
    page.get_by_role("link", name="counting").click()
    expect(page.locator(".connection")).to_have_text("Live")
    last = page.get_by_role("log").locator(".line .text").last
    expect(last).to_contain_text("number")
    number = int(last.inner_text().split()[1])
    expect(page.get_by_role("log")).to_contain_text(f"number {number + 2}")
    expect(page.locator(".connection")).to_have_text("Live")
    page.get_by_role("link", name="Outputs").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download weights.bin").click()
    assert saved.value.path().read_bytes() == bytes(range(250)) * (SIZE // 250)


def test_somebody_changes_things_and_logs_out(people: People, desk: Desk) -> None:
    submit(desk.kube, "unwanted", "print(1)")
    page = log_in(people, desk)
    page.goto(desk.page_url + desk.find_address("unwanted"))
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 job").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 of 1 done")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()
    assert page.context.cookies() == []


def test_a_link_opens_the_page_behind_the_proxy(people: People, desk: Desk) -> None:
    page = people.open_stranger()
    page.goto(desk.make_link("owner", read_only=True))
    expect(page.get_by_text("Read-only")).to_be_visible()


@pytest.mark.parametrize("desk", ["removed"], indirect=True)
def test_a_quiet_connection_outlives_the_time_that_nginx_waits(people: People, desk: Desk) -> None:
    page = log_in(people, desk)
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if "/api/v1/stream" in request.url else None)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator(".connection")).to_have_text("Live")
    begun = len(streams)
    page.wait_for_timeout((NGINX_READ_TIMEOUT + 5) * 1000)
    submit(desk.kube, "late", "print(1)")
    expect(page.get_by_role("link", name="late")).to_be_visible()
    expect(page.locator(".connection")).to_have_text("Live")
    assert len(streams) == begun, "the connection was made anew"


def test_an_archive_may_be_larger_than_what_nginx_takes_by_itself(people: People, desk: Desk, tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("train.py", "print('unpacked')\n")
        file.writestr("table.bin", random.Random(1).randbytes(1_500_000))
    page = log_in(people, desk)
    page.goto(f"{desk.page_url}#/new")
    page.get_by_label("Runtime").select_option(label="plain")
    page.get_by_role("button", name="Archive").click()
    page.locator("input[type=file]").set_input_files(archive)
    page.get_by_label("File to start").fill("train.py")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("unpacked")


@pytest.mark.parametrize("desk", ["kept"], indirect=True)
def test_a_server_that_comes_back_is_found_through_nginx(people: People, desk: Desk) -> None:
    page = log_in(people, desk)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator(".connection")).to_have_text("Live")
    desk.server.kill()
    expect(page.locator(".connection")).to_have_text("Disconnected")
    desk.server = launch_server(desk.server.home)
    REPLACED.add(desk.server.process.pid)
    expect(page.locator(".connection")).to_have_text("Live")
    submit(desk.kube, "after", "print(1)")
    expect(page.get_by_role("link", name="after")).to_be_visible()
