"""Sets of completion indexes as text: `0,2-4,7`. Status fields and success policies are written like this.

Three or more consecutive indexes become an interval. `parse_indexes` reads what a controller has stored and ignores
invalid parts; `check_indexes` reads user input and reports errors.
"""

from __future__ import annotations

from collections.abc import Collection


def format_indexes(indexes: Collection[int]) -> str:
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_format_run(first, last) for first, last in runs)


def _format_run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


_LONGEST = 10
"""Maximum number of digits of an index."""
_MOST = 1_000_000
"""Maximum number of indexes, because a short text can denote many."""


def parse_indexes(text: str, below: int | None = None) -> list[int]:
    """The indexes less than `below`."""
    result: list[int] = []
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        if not _is_integer(low) or (high and not _is_integer(high)):
            continue
        end = min(int(high or low) + 1, _MOST if below is None else below)
        result.extend(range(int(low), end))
        if len(result) > _MOST:
            break
    return result


def check_indexes(text: str, completions: int) -> tuple[int, str]:
    """The number of indexes in the text, and the error ("" if there is none)."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2:
            quoted = f'"{part}"'
            rule = "an index interval can have at most two parts separated by '-'"
            return 0, f"the fragment {quoted} violates the requirement that {rule}"
        for limit in limits:
            if not _is_integer(limit):
                return 0, f'cannot convert string to integer for index: "{limit}"'
            if int(limit) >= completions:
                return 0, f'too large index: "{limit}"'
        first, end = int(limits[0]), int(limits[-1])
        if len(limits) == 2 and first >= end:
            return 0, f"non-increasing order, previous: {first}, current: {end}"
        if last >= first:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        total += end - first + 1
        last = end
    return total, ""


def _is_integer(text: str) -> bool:
    return text.removeprefix("+").isdigit() and text.isascii() and len(text) <= _LONGEST
