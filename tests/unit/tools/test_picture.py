"""The picture of a screen: its text, in its colours, and nothing that the screen does not show."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pyte
import pytest

from tools.picture import build_svg

pytestmark = pytest.mark.unit


def test_the_picture_shows_what_the_screen_shows() -> None:
    screen = pyte.Screen(20, 5)
    pyte.Stream(screen).feed("\x1b[32mgreen\x1b[0m <&>\r\n\x1b[1mbold\x1b[0m")
    picture = ET.fromstring(build_svg(screen, "a & b"))
    texts = [
        (node.text, node.get("fill"), node.get("font-weight")) for node in picture.iter() if node.tag.endswith("text")
    ]
    assert texts == [
        ("a & b", "#868e96", None),
        ("green", "#69db7c", None),
        ("\u00a0<&>", "#d0d0d0", None),
        ("bold", "#d0d0d0", "bold"),
    ]
