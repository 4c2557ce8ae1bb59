"""Makes the pictures of the dashboard in README and docs/dashboard.md, from a real run.

    python -m tools.dashboard_pictures                writes docs/pictures/dashboard-*.png
    python -m tools.dashboard_pictures -o DIR --all   every page, both themes, 360 and 1,440 pixels, to be looked at

A server in a home of its own trains on two ranks of which one fails once; another job waits, one has failed, and some
have finished. Nothing in the pictures is drawn by hand.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser import jobs
from tests.browser.desk import Desk, People, launch, open_desk
from tests.support.server import start_server
from tools.toolbox import Toolbox

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
_LINES = 40
"""So many lines have been printed when a picture is taken."""


@contextmanager
def running_desk(home: Path) -> Iterator[Desk]:
    with start_server(home) as server:
        desk = open_desk(server)
        jobs.submit_all(desk.kube)
        desk.wait_for(jobs.DOOMED, lambda job: job["state"] == "Failed")
        desk.wait_for(jobs.HOSTILE, lambda job: job["state"] == "Failed")
        desk.wait_for(jobs.TALKER, lambda job: job["attempt"] == 1 and job["progress"] is not None)
        yield desk
        desk.end_jobs()


def list_shown(desk: Desk) -> dict[str, str]:
    """Name of the picture -> address."""
    talker = desk.find_address(jobs.TALKER)
    return {
        "overview": "#/",
        "jobs": "#/jobs",
        "job": talker,
        "ranks": f"{talker}?tab=ranks",
        "events": f"{talker}?tab=events",
        "failed": desk.find_address(jobs.DOOMED),
        "waiting": desk.find_address(jobs.WAITING),
        "hostile": desk.find_address(jobs.HOSTILE),
        "history": "#/history",
        "runtimes": "#/runtimes",
    }


def take(people: People, address: str, file: Path, *, width: int = 1440, **options: Any) -> None:
    page = people.open(address, width=width, device_scale_factor=1, **options)
    page.locator("main").wait_for()
    if address.count("/") > 3 and "tab=" not in address:
        page.wait_for_timeout(_LINES * 100)
    page.wait_for_timeout(600)
    page.screenshot(path=file)
    page.context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pictures of the dashboard.")
    parser.add_argument("-o", "--output", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument("--all", action="store_true", help="every page in both themes and widths")
    options = parser.parse_args()
    found = Toolbox().find_browser()
    if found is None:
        print("Chromium is not here: run `make setup`", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory() as folder,
        running_desk(Path(folder) / "home") as desk,
        sync_playwright() as driver,
    ):
        browser = launch(driver, found)
        people = People(browser, desk)
        shown = list_shown(desk)
        options.output.mkdir(parents=True, exist_ok=True)
        if not options.all:
            take(people, shown["job"], options.output / "dashboard-job.png", color_scheme="light")
            take(people, shown["jobs"], options.output / "dashboard-jobs.png", color_scheme="dark")
        for name, address in shown.items() if options.all else ():
            for width, theme, locale in ((1440, "light", "en-US"), (1440, "dark", "ko-KR"), (360, "light", "ko-KR")):
                file = options.output / f"{name}-{width}-{theme}.png"
                take(people, address, file, width=width, color_scheme=theme, locale=locale)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
