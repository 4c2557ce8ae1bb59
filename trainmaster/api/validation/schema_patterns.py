"""The patterns of schemas, as functions. Ours and upstream's, never a caller's (those: `api.formats.patterns`).

A text that looks like a quantity must also be one that we can reckon with: `1e999999999` fits the pattern and fills the
memory of whoever writes it out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from trainmaster.api.formats import quantity

_SUFFIXES = "[numkMGTPE]"
"""Only the pattern of quantities has these."""


@cache
def get_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches. As in Go, `$` is the end and not the line break before it."""
    if pattern.endswith("$") and not pattern.endswith(r"\$"):
        pattern = rf"{pattern[:-1]}\Z"
    search = re.compile(pattern).search
    if _SUFFIXES in pattern:
        return lambda text: search(text) is not None and quantity.is_valid(text)
    return lambda text: search(text) is not None
