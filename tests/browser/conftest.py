"""One server with jobs and one browser for all tests of the dashboard. Without Chromium the tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import jobs
from tests.browser.desk import Desk, People, open_desk, running_browser
from tests.support.server import start_server
from tools.toolbox import Toolbox


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with running_browser() as program:
        yield program


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    environ = {"TRAINMASTER_NODE_GPUS": str(jobs.GPUS)}
    with start_server(tmp_path_factory.mktemp("dashboard") / "home", environ=environ) as server:
        desk = open_desk(server)
        jobs.submit_all(desk.kube)
        desk.add_tenant("ann")
        yield desk
        desk.end_jobs()


@pytest.fixture(scope="package")
def all_people(browser: Browser, desk: Desk) -> People:
    return People(browser, desk)


@pytest.fixture
def people(all_people: People) -> Iterator[People]:
    """No page may write an error to the console, break its policy, or ask another server."""
    yield all_people
    assert all_people.close() == []


@pytest.fixture(scope="package")
def axe() -> str:
    """The script that finds mistakes of accessibility."""
    toolbox = Toolbox()
    path: Path | None = toolbox.find_axe()
    if path is None:
        pytest.skip(toolbox.why_missing("axe-core"))
    return path.read_text()
