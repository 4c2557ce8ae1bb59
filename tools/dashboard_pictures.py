"""Makes the pictures of the dashboard in README and docs/dashboard.md, from a real run (tools/dashboard_world.py).

    python -m tools.dashboard_pictures           writes docs/pictures/dashboard-*.png
    python -m tools.dashboard_pictures -o DIR    somewhere else

Nothing in the pictures is drawn by hand. `tools/dashboard_walk.py` takes all pages.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.desk import People, launch
from tools import dashboard_world as world
from tools.browser import CHROMIUM
from tools.demo_torch import find_environment
from tools.toolbox import Toolbox

FOLDER = world.ROOT / "docs" / "pictures"
_LINES_MS = 4000
"""So long lines come before the picture is taken."""


def take(people: People, address: str, file: Path, theme: str) -> None:
    page = people.open(address, device_scale_factor=1, color_scheme=theme)
    page.locator("main").wait_for()
    page.wait_for_timeout(_LINES_MS)
    page.screenshot(path=file)
    page.context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=FOLDER, metavar="DIR")
    options = parser.parse_args()
    toolbox = Toolbox()
    found = toolbox.find_browser()
    if found is None:
        print(toolbox.why_missing(CHROMIUM), file=sys.stderr)
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        world.show_world(Path(folder) / "home", torch=find_environment(), finished=20) as desk,
        sync_playwright() as driver,
    ):
        browser = launch(driver, found)
        people = People(browser, desk)
        take(people, desk.find_address(world.TRAINING), options.output / "dashboard-job.png", "light")
        take(people, "#/jobs", options.output / "dashboard-jobs.png", "dark")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
