"""Open streams: limits their number per caller, and ends them with the server.

A stream is a context that owns all its watches, readers and tasks, so everything is released when it ends for any
reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from trainmaster.api.meta import Fields
from trainmaster.rest.problems import Problem

MOST_OF_ONE = 500
MOST = 1_500
_GOLDEN_RATIO = 0.618033988749895


def encode(event: str, data: Fields, event_id: str = "") -> bytes:
    """JSON has no line breaks, so one data line suffices."""
    return encode_raw(event, orjson.dumps(data), event_id)


def encode_raw(event: str, data: bytes, event_id: str = "") -> bytes:
    """`data` is JSON already."""
    head = f"id: {event_id}\n".encode() if event_id else b""
    return head + b"event: %s\ndata: %s\n\n" % (event.encode(), data)


class Streams:
    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()
        self.closing = asyncio.Event()
        self._share = 0.0

    @property
    def count(self) -> int:
        return self._open.total()

    def check(self, who: str) -> None:
        """Raises Problem 429 if there are too many."""
        if self._open[who] >= self._most_of_one or self.count >= self._most:
            text = f"{self._open[who]} streams are open for you, and {self.count} in all (limits.watchers_per_user)"
            raise Problem(429, "too-many-streams", text, hint="close some; one stream has all workers", retry_after=5)

    def measure(self, who: str) -> tuple[int, int]:
        """(open, allowed) of one caller."""
        return self._open.get(who, 0), self._most_of_one

    def choose_share(self) -> float:
        """A number from 0 to 1, so that those of streams opened one after the other are spread evenly."""
        self._share = (self._share + _GOLDEN_RATIO) % 1.0
        return self._share

    @contextmanager
    def opened(self, who: str) -> Iterator[None]:
        self._open[who] += 1
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    def close(self) -> None:
        """Ends all streams; their clients reconnect."""
        self.closing.set()
