"""Regular expressions that users write, matched in linear time (RE2, as upstream does).

Python's own engine takes exponential time for some patterns, and these are matched inside the control plane. Used for
the failure policy of JobSets, and to warn about invalid patterns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

LONGEST = 10_000
"""Maximum length of a pattern; RE2 itself limits the memory of the compiled form."""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> tuple[Any, str]:
    # Imported on demand, because the import takes 10 ms. It has no types.
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415

    if len(pattern) > LONGEST:
        return None, f"is longer than {LONGEST} characters"
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options), ""
    except re2.error as error:
        text = error.args[0] if error.args else "unknown"
        return None, text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def is_found(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere in the text; an invalid pattern matches nothing."""
    compiled, _ = _compile(pattern[: LONGEST + 1])
    return compiled is not None and compiled.search(text) is not None


def find_fault(pattern: str) -> str | None:
    """Why a pattern is invalid; None if it is valid."""
    compiled, fault = _compile(pattern[: LONGEST + 1])
    return None if compiled is not None else fault
