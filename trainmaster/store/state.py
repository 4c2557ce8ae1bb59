"""The in-memory part of a store: current records, transactions with undo, subscribers, windows, durability waiters.

`memory.MemoryStore` and `sqlite.SqliteStore` add a way to make events durable. The steps of a write:

    put/delete    record replaced, event noted                        (undone if the transaction raises)
    end           events enter the replay windows and `_pending`      (visible together)
    publish       subscribers, then watches inside the process
    commit        by the implementation, which takes `_pending` and calls `_acknowledge` when it is on disk
    acknowledge   `durable()` returns, outside watches are woken

Invariants: `revision` grows by one per write; events enter windows in revision order; nothing is acknowledged and no
outside watch is woken before its commit. Records hold bytes, never parsed objects, and are not tracked by the cycle
collector, so that a full collection does not slow down with 100,000 of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import NamedTuple

from trainmaster.kit import failpoints
from trainmaster.kit.untracked import untrack
from trainmaster.store.contract import ABSENT, Absent, Event, EventType, Mismatch, StoredRecord, StoreError
from trainmaster.store.names import SortedNames, end_of_prefix
from trainmaster.store.packing import Dictionaries, Packed, PackedRecord
from trainmaster.store.window import BucketWatch, Window

MOST_BEHIND = 48
"""Writes that are not on disk yet when background work goes on. Writes become durable in order, so a write of somebody
else waits for all of them; and a commit in another thread waits for the interpreter while the event loop is busy."""

Subscriber = Callable[[Sequence[Event]], None]


class WindowLimits(NamedTuple):
    """Limits of each bucket's replay window. Reaching either drops the oldest events."""

    events: int = 8_192
    bytes: int = 16 * 1024 * 1024


DEFAULT_LIMITS = WindowLimits()


class Bucket:
    __slots__ = ("name", "names", "records", "window")

    def __init__(self, name: str, window: Window) -> None:
        self.name = name
        self.records: dict[str, StoredRecord] = {}
        self.names = SortedNames()
        self.window = window


class _Transaction(AbstractContextManager[None]):
    """One object serves all transactions of a store: they may nest, but never overlap otherwise."""

    __slots__ = ("_marks", "_state")

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._marks: list[int] = []

    def __enter__(self) -> None:
        self._marks.append(self._state._begin())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state._end(self._marks.pop(), undo=kind is not None)


class StoreState:
    def __init__(self, limits: WindowLimits = DEFAULT_LIMITS) -> None:
        self.revision = 0
        self.durable_revision = 0
        self.limits = limits
        self._readable_revision = 0
        """Watchers had a chance to read up to here; windows are not trimmed above it."""
        self.settled_revision = 0
        self._dictionaries = Dictionaries()
        self._floor = 0
        """No bucket has history up to this revision (e.g. after a restore)."""
        self._buckets: dict[str, Bucket] = {}
        self._transaction = _Transaction(self)
        self._depth = 0
        self._events: list[Event] = []
        """Events of the open transaction; also its undo log."""
        self._pending: list[Event] = []
        """Events of ended transactions that no commit has taken yet."""
        self._unpublished: deque[Sequence[Event]] = deque()
        self._publishing = False
        self._subscribers: list[Subscriber] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._sizes: dict[str, int] | None = None
        """Bytes by namespace; None until first asked for."""
        self._failure: StoreError | None = None
        """Set when the store is closed or broken: writes and waits raise it."""
        self._refusal: StoreError | None = None
        """Raised by writes: the failure, or that the disk is full."""

    def adopt(self, buckets: dict[str, Bucket], *, revision: int, floor: int) -> None:
        """Takes over loaded, durable data. Only for an empty store."""
        self._buckets = buckets
        self._sizes = None
        self.revision = self.durable_revision = self._readable_revision = revision
        self._floor = floor

    # Reads

    def get(self, bucket: str, name: str) -> StoredRecord | None:
        held = self._buckets.get(bucket)
        return held.records.get(name) if held is not None else None

    def get_all(self, bucket: str, names: Iterable[str]) -> Sequence[StoredRecord]:
        held = self._buckets.get(bucket)
        if held is None:
            return []
        records = held.records
        return [records[name] for name in names if name in records]

    def scan(self, bucket: str, prefix: str = "", after: str = "", limit: int = 0) -> Sequence[StoredRecord]:
        held = self._buckets.get(bucket)
        if held is None:
            return []
        low = max(prefix, after + "\0") if after else prefix
        names: Iterable[str] = held.names.iterate(low, end_of_prefix(prefix))
        if limit:
            names = islice(names, limit)
        return list(map(held.records.__getitem__, names))

    def count(self, bucket: str, prefix: str = "", after: str = "") -> int:
        held = self._buckets.get(bucket)
        if held is None:
            return 0
        if not prefix and not after:
            return len(held.records)
        low = max(prefix, after + "\0") if after else prefix
        return max(0, held.names.count(low, end_of_prefix(prefix)))

    def measure(self, namespace: str) -> int:
        if self._sizes is None:
            self._sizes = {}
            for held in self._buckets.values():
                for record in held.records.values():
                    self._add_size(record.name, record.size)
        return self._sizes.get(namespace, 0)

    def _add_size(self, name: str, more: int) -> None:
        namespace, slash, _ = name.partition("/")
        if slash:
            assert self._sizes is not None
            self._sizes[namespace] = self._sizes.get(namespace, 0) + more

    def buckets(self) -> Sequence[str]:
        return sorted(name for name, held in self._buckets.items() if held.records)

    def history(self, bucket: str) -> Iterator[Event]:
        held = self._buckets.get(bucket)
        return iter(list(held.window) if held is not None else [])

    # Writes

    def put(
        self, bucket: str, name: str, value: bytes, *, expect: int | Absent | None = None, memo: object = None
    ) -> StoredRecord:
        held = self._buckets.get(bucket) or self._add_bucket(bucket)
        current = held.records.get(name)
        if expect is not None:
            if expect is ABSENT:
                if current is not None:
                    raise Mismatch(bucket, name, current)
            elif current is None or current.revision != expect:
                raise Mismatch(bucket, name, current)
        if self._refusal is not None:
            raise self._refusal
        revision = self.revision + 1
        if current is None:
            if not name.isascii():
                name.encode()  # invalid UTF-8 must fail here, not in a commit
            record = StoredRecord(held.name, name, revision, revision, value, memo)
            held.names.add(name)
        else:
            record = StoredRecord(held.name, current.name, revision, current.created, value, memo)
        held.records[record.name] = record
        self._note(EventType.PUT, record, current)
        return record

    def delete(
        self, bucket: str, name: str, value: bytes, *, expect: int | None = None, memo: object = None
    ) -> StoredRecord:
        held = self._buckets.get(bucket)
        current = held.records.get(name) if held is not None else None
        if held is None or current is None or (expect is not None and current.revision != expect):
            raise Mismatch(bucket, name, current)
        if self._refusal is not None:
            raise self._refusal
        record = StoredRecord(held.name, current.name, self.revision + 1, current.created, value, memo)
        del held.records[name]
        held.names.remove(name)
        self._note(EventType.DELETE, record, current)
        return record

    def transaction(self) -> AbstractContextManager[None]:
        return self._transaction

    def _note(self, kind: EventType, record: StoredRecord, previous: StoredRecord | None) -> None:
        event = Event(kind, record, previous)
        # Records and events refer only to values and older records, so they cannot be part of a cycle.
        untrack(record)
        untrack(event)
        self.revision = record.revision
        if self._sizes is not None:
            self._add_size(record.name, _count_growth(event))
        self._events.append(event)
        if not self._depth:
            self._finish()

    def _begin(self) -> int:
        self._depth += 1
        return len(self._events)

    def _end(self, mark: int, *, undo: bool) -> None:
        self._depth -= 1
        if undo:
            self._undo_to(mark)
        if not self._depth and self._events:
            self._finish()

    def _undo_to(self, mark: int) -> None:
        for event in reversed(self._events[mark:]):
            held = self._buckets[event.record.bucket]
            name = event.record.name
            if self._sizes is not None:
                self._add_size(name, -_count_growth(event))
            if event.previous is None:
                del held.records[name]
                held.names.remove(name)
            else:
                held.records[name] = event.previous
                if event.type is EventType.DELETE:
                    held.names.add(name)
        self.revision -= len(self._events) - mark
        del self._events[mark:]

    def _finish(self) -> None:
        """Ends the transaction: adds its events to the history and passes them to the commit and to subscribers."""
        events, self._events = self._events, []
        for event in events:
            window = self._buckets[event.record.bucket].window
            if window.needs_trim():
                self._forget(window.trim(self._readable_revision))
            window.append(event)
        self._pending += events
        self._request_commit()
        self._publish(events)

    # Implemented by subclasses

    def _request_commit(self) -> None:
        """Called when `_pending` has grown; must make it durable soon."""
        raise NotImplementedError

    async def settle(self, revision: int, at_rest: Sequence[tuple[StoredRecord, bytes]]) -> None:
        """Must make it durable, and call `_replace`."""
        raise NotImplementedError

    def _forget(self, events: Sequence[Event]) -> None:
        """Called with events that left the replay window; rows that only they needed may be removed."""

    # Listening

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def watch(self, bucket: str, after: int, *, durable: bool = True) -> BucketWatch:
        held = self._buckets.get(bucket) or self._add_bucket(bucket)
        return BucketWatch(held.window, self, after, durable=durable)

    def _publish(self, events: Sequence[Event]) -> None:
        """A subscriber may write: those events are delivered after all subscribers have seen the earlier ones."""
        self._unpublished.append(events)
        if self._publishing:
            return
        errors: list[Exception] = []
        self._publishing = True
        try:
            while self._unpublished:
                batch = self._unpublished.popleft()
                self._call_subscribers(batch, errors)
                self._wake(batch, durable=False)
        finally:
            self._publishing = False
        if errors:
            raise errors[0]

    def _call_subscribers(self, events: Sequence[Event], errors: list[Exception]) -> None:
        for callback in tuple(self._subscribers):
            try:
                callback(events)
            except Exception as error:  # noqa: BLE001 - raised again after the others were called
                errors.append(error)

    def _wake(self, events: Sequence[Event], *, durable: bool) -> None:
        for bucket in dict.fromkeys(event.record.bucket for event in events):
            for watch in self._buckets[bucket].window.watches:
                if watch.durable is durable:
                    watch.wake()

    # Durability

    async def durable(self, revision: int) -> None:
        if revision <= self.durable_revision:
            return
        if revision > self.revision:
            raise ValueError(f"revision {revision} was not given out yet, the newest is {self.revision}")
        if self._failure is not None:
            raise self._failure
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, waiter))
        await waiter

    async def catch_up(self) -> None:
        await self.durable(max(self.revision - MOST_BEHIND, 0))

    def _take_pending(self) -> list[Event]:
        events, self._pending = self._pending, []
        return events

    def _acknowledge(self, events: Sequence[Event]) -> None:
        """The events are on disk: wakes everyone waiting for it."""
        reached = events[-1].record.revision
        self.durable_revision = reached
        waiting, self._waiters = self._waiters, []
        for item in waiting:
            if item[0] > reached:
                self._waiters.append(item)
            elif not item[1].done():
                item[1].set_result(None)
        failpoints.hit("store.after_ack_before_dispatch")
        self._wake(events, durable=True)
        self._note_readable(reached)

    def _note_readable(self, revision: int) -> None:
        self._readable_revision = revision

    def _fail(self, reason: StoreError) -> None:
        """From now on nothing can be written or made durable."""
        self._failure = self._refusal = reason
        waiting, self._waiters = self._waiters, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(reason)

    def _close_watches(self) -> None:
        for held in self._buckets.values():
            for watch in tuple(held.window.watches):
                watch.close()

    def _replace(self, settled: int, packed: Packed) -> None:
        """Packed values are on disk: replaces their records."""
        self.settled_revision = settled
        for bucket, dictionary in packed.fresh.items():
            self._dictionaries.add(bucket, dictionary)
        for old, value in packed.values:
            records = self._buckets[old.bucket].records
            if records.get(old.name) is old:
                dictionary = self._dictionaries.get_of(value)
                new = PackedRecord(old.bucket, old.name, old.revision, old.created, value, dictionary)
                untrack(new)
                records[old.name] = new

    def _add_bucket(self, name: str) -> Bucket:
        window = Window(self._floor, self.limits.events, self.limits.bytes)
        held = self._buckets[name] = Bucket(name, window)
        return held


def _count_growth(event: Event) -> int:
    """By how many bytes the current values grew."""
    before = event.previous.size if event.previous is not None else 0
    return (event.record.size if event.type is EventType.PUT else 0) - before
