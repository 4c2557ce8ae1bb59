"""The patterns of schemas, as functions. Ours and upstream's, never a caller's (those: `api.formats.patterns`).

A text that matches the pattern of quantities must also be parsed, because values such as `1e999999999` match it but
would use up the memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from trainmaster.api.formats import quantity

_SUFFIXES = "[numkMGTPE]"
"""Occurs only in the pattern of quantities."""


@cache
def get_matcher(pattern: str) -> Callable[[str], bool]:
    """A function that matches the pattern. As in Go, `$` matches only at the end, not before a final newline."""
    if pattern.endswith("$") and not pattern.endswith(r"\$"):
        pattern = rf"{pattern[:-1]}\Z"
    search = re.compile(pattern).search
    if _SUFFIXES in pattern:
        return lambda text: search(text) is not None and quantity.is_valid(text)
    return lambda text: search(text) is not None
