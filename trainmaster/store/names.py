"""A sorted set of names, in chunks, so that inserting into 100,000 names moves only a thousand pointers.

The order is by code point, which is the byte order of UTF-8. Used by `state` for prefix scans and paging.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain

_CHUNK = 1024


class SortedNames:
    __slots__ = ("_chunks", "_firsts", "_size")

    def __init__(self, names: Iterable[str] = ()) -> None:
        ordered = sorted(names)
        self._chunks = [ordered[start : start + _CHUNK] for start in range(0, len(ordered), _CHUNK)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        self._size = len(ordered)

    def __len__(self) -> int:
        return self._size

    def add(self, name: str) -> None:
        """The name must not be in the set."""
        self._size += 1
        if not self._chunks:
            self._chunks.append([name])
            self._firsts.append(name)
            return
        at = max(0, bisect_right(self._firsts, name) - 1)
        chunk = self._chunks[at]
        insort(chunk, name)
        if len(chunk) > 2 * _CHUNK:
            self._chunks[at : at + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
            self._firsts[at : at + 1] = [chunk[0], chunk[_CHUNK]]
        else:
            self._firsts[at] = chunk[0]

    def remove(self, name: str) -> None:
        """The name must be in the set."""
        self._size -= 1
        at = bisect_right(self._firsts, name) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        # Entries of `_firsts` may sort before the first name of their chunk; searches still work.
        if not chunk:
            del self._chunks[at], self._firsts[at]

    def iterate(self, low: str, high: str | None) -> Iterator[str]:
        """Names in [low, high), in order; None as `high` means no upper bound. The set must not change meanwhile."""
        return chain.from_iterable(self._slices(low, high))

    def _slices(self, low: str, high: str | None) -> Iterator[list[str]]:
        if not self._chunks:
            return
        at = max(0, bisect_right(self._firsts, low) - 1)
        start = bisect_left(self._chunks[at], low)
        for chunk in self._chunks[at:]:
            stop = len(chunk) if high is None else bisect_left(chunk, high)
            yield chunk[start:stop] if start or stop < len(chunk) else chunk
            if stop < len(chunk):
                return
            start = 0

    def count(self, low: str, high: str | None) -> int:
        return (self._size if high is None else self._rank(high)) - self._rank(low)

    def _rank(self, name: str) -> int:
        """How many names sort before this one."""
        at = bisect_right(self._firsts, name) - 1
        if at < 0:
            return 0
        return sum(map(len, self._chunks[:at])) + bisect_left(self._chunks[at], name)


def end_of_prefix(prefix: str) -> str | None:
    """The smallest string that is greater than all strings with that prefix; None if there is none."""
    trimmed = prefix.rstrip("\U0010ffff")
    return trimmed[:-1] + chr(ord(trimmed[-1]) + 1) if trimmed else None
