"""Cleans lines of programs for a terminal that also shows a panel. Pure.

A program may move the cursor, redraw a progress bar, or set colours without resetting them. Only colours are kept, and
they are reset at the end of the line.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_]?)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"
_TAB = 8


def strip_controls(text: str) -> str:
    """The text without control sequences."""
    return _CONTROLS.sub("", _ESCAPES.sub("", _take_last(text))).expandtabs(_TAB)


def tidy(text: str, *, colours: bool) -> str:
    """The line as it can be shown above the panel."""
    if not colours:
        return strip_controls(text)
    kept = _ESCAPES.sub(lambda match: match[0] if _COLOUR.fullmatch(match[0]) else "", _take_last(text))
    kept = _CONTROLS.sub("", kept).expandtabs(_TAB)
    return kept + _RESET if "\x1b" in kept else kept


def _take_last(text: str) -> str:
    """The last state of a line that was redrawn with carriage returns, such as a progress bar."""
    if "\r" not in text:
        return text
    pieces = [piece for piece in text.split("\r") if piece]
    return pieces[-1] if pieces else ""
