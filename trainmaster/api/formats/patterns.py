"""Regular expressions that users write, matched in linear time (RE2, as upstream does).

Python's own engine takes exponential time for some patterns, and these are matched inside the control plane. Used for
the failure policy of JobSets, to warn about invalid patterns, and to search logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

LONGEST = 10_000
"""Maximum length of a pattern; RE2 itself limits the memory of the compiled form."""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> tuple[Any, str]:
    if len(pattern) > LONGEST:
        return None, f"is longer than {LONGEST} characters"
    return _compile_with(pattern, {})


def _compile_with(pattern: str, flags: Mapping[str, bool]) -> tuple[Any, str]:
    """`flags`: options of RE2."""
    # Imported on demand, because the import takes 10 ms. It has no types.
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415

    options = re2.Options()
    for name, value in {"log_errors": False, **flags}.items():
        setattr(options, name, value)
    try:
        return re2.compile(pattern, options=options), ""
    except re2.error as error:
        text = error.args[0] if error.args else "unknown"
        return None, text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def is_found(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere in the text; an invalid pattern matches nothing."""
    compiled, _ = _compile(pattern[: LONGEST + 1])
    return compiled is not None and compiled.search(text) is not None


_LINE_FLAGS = {"never_nl": True, "never_capture": True}
_TEXT_ENDS = {r"\A": "^", r"\z": "$"}


class LineMatch(Protocol):
    def start(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LinePattern:
    search: Callable[[bytes, int], LineMatch | None]
    """(lines, from which byte on) -> the first match."""
    asks_for_begin: bool
    """Whether a match may depend on where a line begins. Any other is found, too, if something stands before the
    line."""


def compile_for_lines(sought: str, *, is_pattern: bool) -> tuple[LinePattern | None, str]:
    """For bytes with many lines: matches lie within one line, and `^` and `$` are its ends. A text that is no pattern
    is found in upper and lower case. (compiled, "") or (None, why the pattern is invalid)."""
    if not is_pattern:
        compiled, fault = _compile_with(sought, {**_LINE_FLAGS, "literal": True, "case_sensitive": False})
        return None if compiled is None else LinePattern(compiled.search, False), fault
    # Alone first: a bracket in it must not close ours.
    if (wrong := find_fault(sought)) is not None:
        return None, wrong
    lines = re.sub(r"\\.", lambda found: _TEXT_ENDS.get(found[0], found[0]), sought, flags=re.DOTALL)
    compiled, fault = _compile_with(f"(?m)(?:{lines})", _LINE_FLAGS)
    return None if compiled is None else LinePattern(compiled.search, "^" in lines), fault


def find_fault(pattern: str) -> str | None:
    """Why a pattern is invalid; None if it is valid."""
    compiled, fault = _compile(pattern[: LONGEST + 1])
    return None if compiled is not None else fault
