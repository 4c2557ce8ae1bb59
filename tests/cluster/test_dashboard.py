"""The dashboard in front of a cluster whose Pods run: logs are read from them, as they come and afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.desk import People, running_browser
from tests.cluster.site import Site
from tests.seam.rest_site import RestSite, running_site
from trainmaster.api.resources import TRAIN_JOBS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_TALK = "for n in $(seq 300); do echo early $n; done; n=0; while true; do echo number $n; n=$((n + 1)); sleep 1; done"
JOB = "followed"


def submit(site: Site) -> None:
    site.add_runtime("talkative", terminationGracePeriodSeconds=1)
    site.submit(JOB, _TALK, nodes=2, runtime="talkative")


@pytest.fixture(scope="module")
def rest(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestSite]:
    with running_site(site.cluster, tmp_path_factory.mktemp("rest")) as rest:
        yield rest


@pytest.fixture(scope="module")
def browser(rest: RestSite) -> Iterator[Browser]:
    with running_browser() as program:
        yield program


def test_logs_of_real_pods_are_followed_searched_and_saved(site: Site, rest: RestSite, browser: Browser) -> None:
    site.await_ready(JOB)
    uid = site.get(TRAIN_JOBS, JOB)["metadata"]["uid"]
    people = People(browser, rest)
    page = people.open(f"#/job/{site.namespace}/{JOB}/{uid}")
    log = page.get_by_role("log")
    last = page.locator(".line .text", has_text=re.compile(r"^number \d+$")).last
    last.wait_for()
    number = int(last.inner_text().split()[1])
    expect(log).to_contain_text(f"number {number + 3}")
    expect(page.locator(".connection")).to_have_text("Live")
    page.get_by_role("searchbox").fill("early 1")
    expect(page.locator(".hits")).to_have_text("0 of 222")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator(".line.current")).to_contain_text("early 1")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.path().read_text().count("early 300\n") == 2
    page.get_by_role("link", name="Ranks").click()
    expect(page.get_by_role("row")).to_have_count(3)
    expect(page.locator(".state-Running")).not_to_have_count(0)
    assert people.close() == []
    site.run("delete", JOB)
