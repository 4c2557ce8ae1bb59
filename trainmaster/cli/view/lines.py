"""Lines that programs print, made fit for a terminal that shows something else below them. Pure.

A program believes that it has the terminal: it moves the cursor, draws a progress bar over itself, sets colours and
never resets them. Of all that only colours are left, and they end with the line.
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
    """Nothing but the text."""
    return _CONTROLS.sub("", _ESCAPES.sub("", _take_last(text))).expandtabs(_TAB)


def tidy(text: str, *, colours: bool) -> str:
    """What may be shown above the panel."""
    if not colours:
        return strip_controls(text)
    kept = _ESCAPES.sub(lambda match: match[0] if _COLOUR.fullmatch(match[0]) else "", _take_last(text))
    kept = _CONTROLS.sub("", kept).expandtabs(_TAB)
    return kept + _RESET if "\x1b" in kept else kept


def _take_last(text: str) -> str:
    """A bar that a program draws over itself with carriage returns: as it looked last."""
    if "\r" not in text:
        return text
    pieces = [piece for piece in text.split("\r") if piece]
    return pieces[-1] if pieces else ""
