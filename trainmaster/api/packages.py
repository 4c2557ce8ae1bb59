"""Requirements as one text, for the annotation `trainmaster.dev/packages`: split and joined in one place. Pure.

People separate requirements by commas, and requirements have commas of their own: `numpy>=1,<2`, `torch[a,b]`. A comma
ends one only outside of brackets, and where a name can begin behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"\s*[A-Za-z0-9./-]")


def split(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        found += [entry.strip() for entry in _split_line(line) if entry.strip()]
    return found


def _split_line(line: str) -> list[str]:
    if ";" in line and line.partition(";")[0].count(",") == 0:
        # An environment marker, which is quoted text; what stands before it is one requirement.
        return [line]
    parts, depth, begin = [], 0, 0
    for place, char in enumerate(line):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth <= 0 and _NAME.match(line, place + 1):
            parts.append(line[begin:place])
            begin = place + 1
    return [*parts, line[begin:]]


def join(requirements: Iterable[str]) -> str:
    """One on each line: whatever is in them, they come apart again."""
    return "\n".join(requirements)
