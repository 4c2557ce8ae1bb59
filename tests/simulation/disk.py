"""A simulated disk that survives crashes, and a store that writes to it with delay.

The store is the real `StoreState`; only commits are simulated: writes are batched while a commit is in progress, a
commit takes a random time, and a crash loses all writes that are not part of a commit in progress. That commit is
applied completely or not at all, and was not acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.simulation.loop import SimLoop
from trainmaster.store.contract import Event, EventType, StoredRecord, StoreError
from trainmaster.store.names import SortedNames
from trainmaster.store.packing import Dictionaries, Packed, PackedRecord, pack_all
from trainmaster.store.state import DEFAULT_LIMITS, Bucket, StoreState
from trainmaster.store.window import Window

Image = dict[str, dict[str, StoredRecord]]


class Disk:
    """The durable state: the records, and the log of this run for checks."""

    def __init__(self, image: Image, revision: int) -> None:
        self.records: Image = {bucket: dict(records) for bucket, records in image.items()}
        self.base = revision
        self.revision = revision
        self.log: list[Event] = []
        self.settled = 0
        self._grown = asyncio.Event()

    async def wait(self) -> None:
        """Waits until something is added."""
        self._grown.clear()
        await self._grown.wait()

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            record = event.record
            held = self.records.setdefault(record.bucket, {})
            if event.type is EventType.PUT:
                held[record.name] = record
            else:
                held.pop(record.name, None)
        self.log += events
        if events:
            self.revision = events[-1].record.revision
            self._grown.set()

    def load(self, state: StoreState, *, with_history: bool) -> None:
        """Opens the store. Without history every watch has to list again."""
        floor = self.base if with_history else self.revision
        buckets: dict[str, Bucket] = {}
        for name, records in self.records.items():
            held = Bucket(name, Window(floor, DEFAULT_LIMITS.events, DEFAULT_LIMITS.bytes))
            held.records = dict(records)
            held.names = SortedNames(records)
            buckets[name] = held
        if with_history:
            for event in self.log:
                buckets[event.record.bucket].window.append(event)
        state.adopt(buckets, revision=self.revision, floor=floor)
        state.settled_revision = self.settled

    def pack(self, settled: int, packed: Packed, dictionaries: Dictionaries) -> None:
        self.settled = settled
        for old, value in packed.values:
            held = self.records[old.bucket]
            if (found := held.get(old.name)) is not None and found.revision == old.revision:
                dictionary = packed.fresh.get(old.bucket) or dictionaries.get_of(value)
                held[old.name] = PackedRecord(old.bucket, old.name, old.revision, old.created, value, dictionary)


class SimStore(StoreState):
    def __init__(self, loop: SimLoop, disk: Disk, pace: Callable[[], float], *, with_history: bool) -> None:
        super().__init__()
        self._loop = loop
        self._disk = disk
        self._pace = pace
        self._on_its_way: list[Event] = []
        self._dead = False
        disk.load(self, with_history=with_history)

    async def settle(self, revision: int, at_rest: Sequence[tuple[StoredRecord, bytes]]) -> None:
        await self.durable(revision)
        packed = pack_all(at_rest, self._dictionaries)
        self._disk.pack(revision, packed, self._dictionaries)
        self._replace(revision, packed)

    def crash(self, *, lands: bool) -> int:
        """Simulates a crash; `lands`: the commit in progress reaches the disk. Returns the number of lost writes."""
        if lands:
            self._disk.append(self._on_its_way)
        self._dead = True
        self._fail(StoreError("the server has crashed"))
        self._close_watches()
        return self.revision - self._disk.revision

    def _request_commit(self) -> None:
        if not self._on_its_way:
            self._begin_commit()

    def _begin_commit(self) -> None:
        self._on_its_way = self._take_pending()
        self._loop.call_later(self._pace(), self._land)

    def _land(self) -> None:
        if self._dead:
            return
        events, self._on_its_way = self._on_its_way, []
        self._disk.append(events)
        self._acknowledge(events)
        if self._pending:
            self._begin_commit()
