"""A disk that survives crashes, and the store that writes to it with delay.

The store is the real `StoreState`; only the way to the disk is made up: writes gather while a commit is on its way, a
commit takes as long as the disk pleases, and a crash loses what was not on its way. What was, is there or not as a
whole, and nobody was told (the one case that a client can not know about).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.simulation.loop import SimLoop
from trainmaster.store.contract import Event, EventType, StoredRecord, StoreError
from trainmaster.store.names import SortedNames
from trainmaster.store.state import DEFAULT_LIMITS, Bucket, StoreState
from trainmaster.store.window import Window

Image = dict[str, dict[str, StoredRecord]]


class Disk:
    """What is durable: the records, and the log of this run for those who check it."""

    def __init__(self, image: Image, revision: int) -> None:
        self.records: Image = {bucket: dict(records) for bucket, records in image.items()}
        self.base = revision
        self.revision = revision
        self.log: list[Event] = []
        self._grown = asyncio.Event()

    async def wait(self) -> None:
        """Returns when something was added."""
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
        """What opening the file does. Without history every watch has to list anew."""
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


class SimStore(StoreState):
    def __init__(self, loop: SimLoop, disk: Disk, pace: Callable[[], float], *, with_history: bool) -> None:
        super().__init__()
        self._loop = loop
        self._disk = disk
        self._pace = pace
        self._on_its_way: list[Event] = []
        self._dead = False
        disk.load(self, with_history=with_history)

    def crash(self, *, lands: bool) -> int:
        """The process ends here; `lands`: the commit on its way reaches the disk. Returns how many writes are lost."""
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
