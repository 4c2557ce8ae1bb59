"""Parses and formats durations and sizes: 90s, 15m, 12h, 30d; 500Mi, 2Gi."""

from __future__ import annotations

import argparse
import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+)([smhdw])")


def parse_span(text: str) -> int:
    """Returns seconds. The ValueError lists the accepted forms."""
    pieces = _SPAN.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise ValueError(f"{text!r} is no span of time: write 90s, 15m, 12h, 30d, or 1d12h")
    return sum(int(number) * _SECONDS[unit] for number, unit in pieces)


def show_span(seconds: float) -> str:
    """In at most two units: 45s, 3m20s, 2h5m, 4d."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left}s"
    if left < 3600:
        return _two(left, 60, "m", 1, "s", 10)
    if left < 86400:
        return _two(left, 3600, "h", 60, "m", 10)
    return _two(left, 86400, "d", 3600, "h", 10)


def _two(left: int, large: int, large_unit: str, small: int, small_unit: str, coarse: int) -> str:
    """Leaves out the small unit from `coarse` of the large unit on."""
    count, rest = divmod(left, large)
    if count >= coarse or rest < small:
        return f"{count}{large_unit}"
    return f"{count}{large_unit}{rest // small}{small_unit}"


def parse_size(text: str) -> int:
    """Bytes: 500Mi, 2Gi, 2G. For argparse."""
    units = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}
    number = text.rstrip("iIbBkKmMgGtT")
    unit = text[len(number) :].upper().removesuffix("B")
    try:
        return int(float(number) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, or a number with Mi or Gi") from None
