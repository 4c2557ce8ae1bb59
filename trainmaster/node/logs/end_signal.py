"""Tells the readers of a container's log that the log is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class EndSignal:
    """Set once, when an attempt of a container is over."""

    def __init__(self) -> None:
        self.is_set = False
        self._readers: set[asyncio.Event] = set()

    def set(self) -> None:
        self.is_set = True
        for event in self._readers:
            event.set()

    @contextmanager
    def waking(self, event: asyncio.Event) -> Iterator[None]:
        """Sets this event too, so that a reader waits for one event only."""
        self._readers.add(event)
        try:
            yield
        finally:
            self._readers.discard(event)
