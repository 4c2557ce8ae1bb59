"""Spans of time as people write them on a command line: 90s, 15m, 12h, 30d."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+)([smhdw])")


def parse_span(text: str) -> int:
    """Seconds. ValueError says what is understood."""
    pieces = _SPAN.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise ValueError(f"{text!r} is no span of time: write 90s, 15m, 12h, 30d, or 1d12h")
    return sum(int(number) * _SECONDS[unit] for number, unit in pieces)
