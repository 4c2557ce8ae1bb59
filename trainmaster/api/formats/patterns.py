"""Regular expressions that users write, matched in linear time (RE2, as upstream does).

Python's own engine takes exponential time for some patterns, and these are matched inside the control plane. Used for
the failure policy of JobSets and to warn about a pattern that can never match because it is not one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

LONGEST = 10_000
"""Characters of a pattern; RE2 itself bounds the memory of the compiled form."""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> tuple[Any, str]:
    # Only where somebody uses patterns: the import costs 10 ms. It has no types.
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
    """Whether the pattern matches anywhere in the text; a pattern that is none matches nothing."""
    compiled, _ = _compile(pattern[: LONGEST + 1])
    return compiled is not None and compiled.search(text) is not None


def find_fault(pattern: str) -> str | None:
    """What is wrong with a pattern; None when nothing is."""
    compiled, fault = _compile(pattern[: LONGEST + 1])
    return None if compiled is not None else fault
