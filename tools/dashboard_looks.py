"""Records what tests/browser/test_looks.py shows, and makes the pictures that it compares with.

    python -m tools.dashboard_looks record    the answers of a real server, then the pictures
    python -m tools.dashboard_looks renew     the pictures, from the answers that are there: after a change of the pages

Look at the pictures (tests/browser/looks) before committing them. Answers are recorded again when the server answers
something else or the pages ask something else. Names of this machine and paths on it are replaced.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests.browser import looks
from tests.browser.desk import Desk, People, launch
from tests.support.server import start_server
from tools import dashboard_world as world
from tools.browser import CHROMIUM
from tools.toolbox import Toolbox

_FINISHED = 30
_SETTLED_MS = 2500

# Everything that the page is answered, also what comes on streams.
_LISTEN = """
window.recorded = {};
const real = window.fetch.bind(window);
window.fetch = async (input, init) => {
  const response = await real(input, init);
  const at = String(input).indexOf("/api/v1/");
  if (at < 0 || !response.body) return response;
  const [own, copy] = response.body.tee();
  const entry = { status: response.status, type: response.headers.get("content-type") ?? "", body: "" };
  window.recorded[String(input).slice(at + 8)] = entry;
  (async () => {
    for await (const text of copy.pipeThrough(new TextDecoderStream())) entry.body += text;
  })().catch(() => {});
  return new Response(own, { status: response.status, headers: response.headers });
};
"""


def list_addresses(desk: Desk) -> dict[str, str]:
    training = desk.find_address(world.TRAINING)
    return {
        "overview": "#/",
        "jobs": "#/jobs",
        "running": training,
        "failed": desk.find_address(world.FAILED),
        "waiting": desk.find_address(world.WAITING),
        "ranks": f"{desk.find_address(world.WIDE)}?tab=ranks",
        "curves": f"{training}?tab=curves",
        "queue": "#/queue",
        "history": "#/history",
        "new": "#/new",
    }


def record(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="trainmaster-looks-") as folder:
        home = Path(folder) / "home"
        with world.show_world(home, finished=_FINISHED) as desk:
            people = People(browser, desk)
            addresses = list_addresses(desk)
            answers: dict[str, Any] = {}
            for name, address in addresses.items():
                page = people.open(address)
                page.add_init_script(_LISTEN)
                page.reload()
                page.locator(looks.READY[name]).first.wait_for()
                page.wait_for_timeout(_SETTLED_MS)
                answers |= page.evaluate("recorded")
                page.close()
            people.close()
        clock = json.loads(answers["server"]["body"])["time"]
        text = json.dumps({"clock": clock, "addresses": addresses, "answers": answers}, indent=1, sort_keys=True)
        looks.FOLDER.mkdir(exist_ok=True)
        looks.ANSWERS.write_text(hide_machine(text, home) + "\n")


def hide_machine(text: str, home: Path) -> str:
    """What is different on every machine, and nobody's business."""
    text = text.replace(str(home), "/srv/trainmaster").replace(str(world.ROOT), "/opt/trainmaster")
    text = text.replace(sys.prefix, "/opt/trainmaster/.venv")
    return re.sub(rf'(\\"name\\": ?\\"){re.escape(platform.node())}(\\")', r"\1workstation\2", text)


def renew(browser: Browser) -> None:
    recorded = looks.read_recorded()
    darkroom = looks.Darkroom(browser)
    boxes: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="trainmaster-looks-") as folder,
        start_server(Path(folder) / "home") as server,
    ):
        for look in looks.LOOKS:
            with looks.open_studio(browser, server.info["dashboard"]["url"], look, recorded) as studio:
                boxes[str(look)] = {}
                for name in looks.READY:
                    seen = studio.show(name)
                    kept = darkroom.reduce(seen)
                    share = darkroom.compare(kept, seen)
                    assert share < looks.MOST / 2, f"256 colours are too few for {name}: {share:.2%} differ"
                    looks.get_picture(name, look).write_bytes(kept)
                    boxes[str(look)][name] = studio.list_boxes()
    places = {"chromium": looks.get_major(browser), "fonts": darkroom.measure_fonts(), "boxes": boxes}
    looks.PLACES.write_text(_write_places(places))


def _write_places(places: dict[str, Any]) -> str:
    """One element per line, so that a change can be read."""
    return (
        re.sub(
            r"\[\n\s+(\"[^\n]*),\n\s+(\d+|-\d+),\n\s+(\d+|-\d+),\n\s+(\d+),\n\s+(\d+)\n\s+\]",
            r"[\1, \2, \3, \4, \5]",
            json.dumps(places, indent=1),
        )
        + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["record", "renew"])
    options = parser.parse_args()
    toolbox = Toolbox()
    found = toolbox.find_browser()
    if found is None:
        print(toolbox.why_missing(CHROMIUM), file=sys.stderr)
        return 1
    with sync_playwright() as driver:
        browser = launch(driver, found)
        if options.work == "record":
            record(browser)
        renew(browser)
        browser.close()
    size = sum(path.stat().st_size for path in looks.FOLDER.iterdir())
    print(f"{looks.FOLDER}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
