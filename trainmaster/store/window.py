"""The replay window of one bucket, and the watches that read it.

A watch is a cursor into the window and has no queue of its own: a slow watcher costs no memory and delays nobody. When
the window has moved past its cursor, it gets Lagging and must list again. So the window's limits on count and bytes
apply to every watcher.

The window is trimmed before new events are added, and only of events that woken watchers had a chance to read, so that
a burst larger than the window still reaches every watcher that reads when it is woken.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator
from operator import attrgetter
from typing import Protocol

from trainmaster.store.contract import Compacted, Event, Lagging, StoreError

_revision_of = attrgetter("revision")

# Dropped entries are removed from the list in batches, because deleting at the front moves the rest.
_SWEEP = 512


class StoreProgress(Protocol):
    """The store's revisions, as needed by watches."""

    @property
    def revision(self) -> int: ...

    @property
    def durable_revision(self) -> int: ...


class Window:
    __slots__ = ("_events", "_head", "_swept", "floor", "max_bytes", "max_events", "size", "watches")

    def __init__(self, floor: int, max_events: int, max_bytes: int) -> None:
        self._events: list[Event | None] = []
        self._head = 0
        """Index of the oldest event in `_events`; entries before it are dropped (None)."""
        self._swept = 0
        """How many events were removed from the front of the list; position = index + _swept."""
        self.floor = floor
        """Events up to this revision may be gone."""
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.size = 0
        self.watches: list[BucketWatch] = []

    def __len__(self) -> int:
        return len(self._events) - self._head

    @property
    def start(self) -> int:
        return self._swept + self._head

    @property
    def end(self) -> int:
        return self._swept + len(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event)
        self.size += _size_of(event)

    def trim(self, readable: int) -> list[Event]:
        """Drops and returns the oldest events that exceed the limits. Events above `readable` stay."""
        dropped: list[Event] = []
        events = self._events
        while self._head < len(events) and (len(self) > self.max_events or self.size > self.max_bytes):
            event = events[self._head]
            assert event is not None
            if event.record.revision > readable:
                break
            events[self._head] = None
            self._head += 1
            self.size -= _size_of(event)
            self.floor = event.record.revision
            dropped.append(event)
        if self._head >= _SWEEP:
            del events[: self._head]
            self._swept += self._head
            self._head = 0
        return dropped

    def needs_trim(self) -> bool:
        return len(self._events) - self._head > self.max_events or self.size > self.max_bytes

    def get_position(self, after: int) -> int:
        """The position of the first event above that revision, which may not exist yet."""
        return self._swept + bisect_right(self._events, after, lo=self._head, key=_revision_of)

    def get(self, position: int) -> Event:
        event = self._events[position - self._swept]
        assert event is not None
        return event

    def slice(self, position: int, up_to: int) -> list[Event]:
        """Events from the position on with a revision of at most `up_to`."""
        start = position - self._swept
        events = self._events
        if events[-1] is not None and events[-1].record.revision <= up_to:
            return events[start:]  # type: ignore[return-value]  # None only stands before _head
        return events[start : bisect_right(events, up_to, lo=start, key=_revision_of)]  # type: ignore[return-value]

    def __iter__(self) -> Iterator[Event]:
        for event in self._events[self._head :]:
            assert event is not None
            yield event


def _size_of(event: Event) -> int:
    # The previous record's value is counted by the event that wrote it.
    return event.record.size


class BucketWatch:
    """See `contract.Watch`."""

    __slots__ = ("_called", "_closed", "_cursor", "_listener", "_progress", "_waiter", "_window", "durable")

    def __init__(self, window: Window, progress: StoreProgress, after: int, *, durable: bool) -> None:
        if after < window.floor or after > progress.revision:
            raise Compacted(after, window.floor)
        self._window = window
        self._progress = progress
        self.durable = durable
        self._cursor = window.get_position(after)
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], bool] | None = None
        self._called = False
        self._closed = False
        window.watches.append(self)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._has_ready():
                event = self._window.get(self._cursor)
                self._cursor += 1
                return event
            await self._wait()

    def take(self) -> list[Event]:
        if self._closed or not self._has_ready():
            return []
        events = self._window.slice(self._cursor, self._limit())
        self._cursor += len(events)
        return events

    @property
    def position(self) -> int:
        limit = self._limit()
        if self._has_ready() or self._cursor < self._window.end:
            return min(limit, self._window.get(self._cursor).revision - 1)
        return limit

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._window.watches.remove(self)
            self.wake()

    async def ready(self) -> None:
        if not self._closed and not self._has_ready():
            await self._wait()

    @property
    def closed(self) -> bool:
        return self._closed

    def listen(self, callback: Callable[[], bool]) -> None:
        self._listener = callback

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._listener is None:
            waiter.set_result(None)
        elif not self._called:
            # Not called directly: the committer must not see a listener's errors or wait for all of them.
            self._called = True
            waiter.get_loop().call_soon(self._call_listener)

    def _call_listener(self) -> None:
        self._called = False
        waiter = self._waiter
        if waiter is None or waiter.done() or self._listener is None:
            return
        if not self._listener():
            waiter.set_result(None)

    def _limit(self) -> int:
        return self._progress.durable_revision if self.durable else self._progress.revision

    def _has_ready(self) -> bool:
        window = self._window
        if self._cursor < window.start:
            raise Lagging("the watcher fell behind the replay window; list again")
        return self._cursor < window.end and window.get(self._cursor).record.revision <= self._limit()

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise StoreError("two readers wait on one watch")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
