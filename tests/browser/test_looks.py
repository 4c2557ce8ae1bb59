"""The pages look as they did: pictures with fixed answers and a fixed clock, in both widths, themes and languages.

Another version of Chromium than the one that made the pictures draws some pixels in another way. There the places and
sizes of the elements are compared, and with other fonts only which elements there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.looks import (
    LOOKS,
    MOST,
    PLACES,
    READY,
    RENEW,
    Darkroom,
    Look,
    Recorded,
    Studio,
    find_moved,
    get_major,
    get_picture,
    open_studio,
    read_recorded,
)
from tests.support.server import start_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

LIGHT = LOOKS[0]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the files of the page are; the server has no jobs."""
    with start_server(tmp_path_factory.mktemp("looks") / "home") as server:
        yield str(server.info["dashboard"]["url"])


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read_recorded()


@pytest.fixture(scope="module")
def places() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PLACES.read_text())
    return found


@pytest.fixture
def darkroom(browser: Browser) -> Iterator[Darkroom]:
    room = Darkroom(browser)
    yield room
    room.close()


def compare_pixels(studio: Studio, darkroom: Darkroom, look: Look) -> dict[str, str]:
    wrong = {}
    for name in READY:
        seen, kept = studio.show(name), get_picture(name, look)
        share = darkroom.compare(kept.read_bytes(), seen)
        if share > MOST:
            beside = kept.with_suffix(".seen.png")
            beside.write_bytes(seen)
            wrong[name] = f"{share:.2%} of the pixels differ from {kept.name}; see {beside}"
    return wrong


def compare_places(studio: Studio, kept: dict[str, Any], *, by_place: bool) -> dict[str, str]:
    wrong = {}
    for name in READY:
        studio.show(name)
        if moved := find_moved(kept[name], studio.list_boxes(), by_place=by_place):
            wrong[name] = "; ".join(moved[:5])
    return wrong


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_pages_look_as_they_did(
    browser: Browser, url: str, recorded: Recorded, places: dict[str, Any], darkroom: Darkroom, look: Look
) -> None:
    has_fonts = darkroom.measure_fonts() == places["fonts"]
    with open_studio(browser, url, look, recorded) as studio:
        if has_fonts and get_major(browser) == places["chromium"]:
            wrong = compare_pixels(studio, darkroom, look)
        else:
            wrong = compare_places(studio, places["boxes"][str(look)], by_place=has_fonts)
    assert wrong == {}, f"if the pages look right, `{RENEW}` makes the new state the one to compare with"


def test_a_change_is_seen_in_pixels_and_places(
    browser: Browser, url: str, recorded: Recorded, darkroom: Darkroom
) -> None:
    with open_studio(browser, url, LIGHT, recorded) as studio:
        before, boxes = studio.show("failed"), studio.list_boxes()
        assert darkroom.compare(darkroom.reduce(before), before) == 0
        assert find_moved(boxes, studio.list_boxes(), by_place=True) == []
        studio.page.evaluate("document.querySelector('.verdict').style.marginBottom = '16px'")
        after = studio.page.screenshot(animations="disabled")
        assert darkroom.compare(before, after) > MOST
        assert find_moved(boxes, studio.list_boxes(), by_place=True)
