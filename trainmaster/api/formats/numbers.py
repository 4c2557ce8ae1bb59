"""Parses integers from annotations and labels, which are untrusted input. Pure."""

from __future__ import annotations

_MOST_DIGITS = 10


def find_count(text: object) -> int | None:
    """A number of at most ten ASCII digits; None for everything else."""
    if not isinstance(text, str) or len(text) > _MOST_DIGITS or not text.isascii() or not text.isdigit():
        return None
    return int(text)
