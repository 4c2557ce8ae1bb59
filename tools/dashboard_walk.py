"""Takes pictures of every page of the dashboard, to be looked at: 360 and 1,440 pixels, both themes and languages.

    python -m tools.dashboard_walk DIR                 every page, as DIR/PAGE-WIDTH-THEME-LANGUAGE.png
    python -m tools.dashboard_walk DIR --only job      those whose name contains it
    python -m tools.dashboard_walk DIR --finished 0    without 10,000 finished jobs

The jobs are those of tools/dashboard_world.py, with torch if `make setup` has installed it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from bench import history
from tests.browser.desk import Desk, People, launch
from tools import dashboard_world as world
from tools.browser import CHROMIUM
from tools.demo_torch import find_environment
from tools.toolbox import Toolbox

LOOKS = ((1440, "light", "en-US"), (1440, "dark", "ko-KR"), (360, "dark", "en-US"), (360, "light", "ko-KR"))
TABS = ("ranks", "curves", "events", "outputs", "code", "manifest")
_SETTLED_MS = 900


@dataclass(frozen=True)
class Shown:
    address: str
    act: Callable[[Page], object] = lambda page: None
    is_stranger: bool = False


def _type_yaml(page: Page) -> None:
    page.get_by_role("button", name="YAML").click()
    page.get_by_role("textbox").first.fill(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {nodes: 1}\n"
    )
    page.wait_for_timeout(1500)


def _open_menu(page: Page) -> None:
    page.locator(".right .menu > button").click()


def _select(page: Page) -> None:
    page.locator("td.box input").first.check()


def _ask_deletion(page: Page) -> None:
    page.locator(".actions button").last.click()


def list_pages(desk: Desk) -> dict[str, Shown]:
    job, wide, failed = (desk.find_address(name) for name in (world.TRAINING, world.WIDE, world.FAILED))
    waiting, long = desk.find_address(world.WAITING), desk.find_address(world.LONG)
    record = desk.rest.get(f"/api/v1/history?name={world.DELETED}")["items"][0]
    return {
        "overview": Shown("#/"),
        "menu": Shown("#/", _open_menu),
        "jobs": Shown("#/jobs"),
        "jobs-selected": Shown("#/jobs?q=evaluate", _select),
        "jobs-none": Shown("#/jobs?q=nothing-like-this"),
        "job": Shown(job),
        **{f"job-{tab}": Shown(f"{job}?tab={tab}") for tab in TABS},
        "job-find": Shown(f"{job}?find=loss"),
        "job-delete": Shown(job, _ask_deletion),
        "wide": Shown(wide),
        "wide-ranks": Shown(f"{wide}?tab=ranks"),
        "failed": Shown(failed),
        "failed-ranks": Shown(f"{failed}?tab=ranks"),
        "failed-curves": Shown(f"{failed}?tab=curves"),
        "waiting": Shown(waiting),
        "waiting-ranks": Shown(f"{waiting}?tab=ranks"),
        "suspended": Shown(desk.find_address(world.SUSPENDED)),
        "long": Shown(long),
        "deleted": Shown(f"#/job/default/{world.DELETED}/{record['uid']}"),
        "missing": Shown("#/job/default/no-such-job/0"),
        "new": Shown("#/new"),
        "new-yaml": Shown("#/new", _type_yaml),
        "queue": Shown("#/queue"),
        "nodes": Shown("#/nodes"),
        "runtimes": Shown("#/runtimes"),
        "runtime": Shown("#/runtime/torch-distributed"),
        "history": Shown("#/history"),
        "history-none": Shown("#/history?q=nothing-like-this"),
        "tenants": Shown("#/tenants"),
        "tenant": Shown("#/tenants/ann"),
        "settings": Shown("#/settings"),
        "login": Shown("", is_stranger=True),
        "link": Shown("#/login?link=used", is_stranger=True),
        "nopage": Shown("#/nothing"),
    }


def take(people: People, shown: Shown, file: Path, width: int, theme: str, locale: str) -> None:
    options: dict[str, Any] = {"color_scheme": theme, "locale": locale, "device_scale_factor": 1}
    if shown.is_stranger:
        page = people.open_stranger(width=width, **options)
        page.goto(people.door.page_url + shown.address)
    else:
        page = people.open(shown.address, width=width, **options)
    page.locator("main").wait_for()
    page.wait_for_timeout(_SETTLED_MS)
    shown.act(page)
    page.wait_for_timeout(_SETTLED_MS / 3)
    # Below the fold, too: what the page holds is higher than the window.
    height = page.evaluate("document.querySelector('main').scrollHeight + document.querySelector('main').offsetTop")
    page.set_viewport_size({"width": width, "height": max(900, min(2600, int(height) + 20))})
    page.wait_for_timeout(_SETTLED_MS / 3)
    page.screenshot(path=file)
    people.contexts.remove(page.context)
    page.context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="", help="pages whose name contains this")
    parser.add_argument("--finished", type=int, default=10_000, help="jobs that ended long ago (default: %(default)s)")
    options = parser.parse_args()
    toolbox = Toolbox()
    found = toolbox.find_browser()
    if found is None:
        print(toolbox.why_missing(CHROMIUM), file=sys.stderr)
        return 1
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-walk-") as folder:
        home = Path(folder) / "home"
        if options.finished:
            home.mkdir()
            asyncio.run(history.fill(home, options.finished))
        with world.show_world(home, torch=find_environment()) as desk, sync_playwright() as driver:
            desk.add_tenant("ann")
            browser = launch(driver, found)
            people = People(browser, desk)
            for name, shown in list_pages(desk).items():
                for width, theme, locale in LOOKS if options.only in name else ():
                    take(
                        people,
                        shown,
                        options.directory / f"{name}-{width}-{theme}-{locale[:2]}.png",
                        width,
                        theme,
                        locale,
                    )
                    print(name, width, theme, locale, flush=True)
            for complaint in people.close():
                print(complaint, file=sys.stderr)
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
