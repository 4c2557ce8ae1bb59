"""Whole numbers that people and controllers write into annotations and labels, read without trust. Pure."""

from __future__ import annotations

_MOST_DIGITS = 10


def find_count(text: object) -> int | None:
    """A number of at most ten ASCII digits; None for everything else, however it looks like one."""
    if not isinstance(text, str) or len(text) > _MOST_DIGITS or not text.isascii() or not text.isdigit():
        return None
    return int(text)
