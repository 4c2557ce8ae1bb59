"""An in-memory store: writes are durable immediately. For tests and dry runs.

It passes the same contract suite as `sqlite.SqliteStore`. With `manual=True` nothing is durable until `commit` is
called, so that a test can act between a write and its commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.store.contract import StoredRecord, StoreError
from trainmaster.store.names import SortedNames
from trainmaster.store.packing import pack_all
from trainmaster.store.state import DEFAULT_LIMITS, Bucket, StoreState, WindowLimits
from trainmaster.store.window import Window


class MemoryStore(StoreState):
    def __init__(self, limits: WindowLimits = DEFAULT_LIMITS, *, manual: bool = False) -> None:
        super().__init__(limits)
        self._manual = manual

    def commit(self) -> None:
        """Makes everything written so far durable."""
        if self._pending:
            self._acknowledge(self._take_pending())

    def copy(self) -> MemoryStore:
        """A store with the same records and history, for tests that start from what was prepared once."""
        buckets: dict[str, Bucket] = {}
        for name, held in self._buckets.items():
            made = buckets[name] = Bucket(name, Window(self._floor, self.limits.events, self.limits.bytes))
            made.records = dict(held.records)
            made.names = SortedNames(held.records)
            for event in held.window:
                made.window.append(event)
        store = MemoryStore(self.limits)
        store.adopt(buckets, revision=self.revision, floor=self._floor)
        return store

    async def settle(self, revision: int, at_rest: Sequence[tuple[StoredRecord, bytes]]) -> None:
        self._replace(revision, pack_all(at_rest, self._dictionaries))

    def close(self) -> None:
        self._fail(StoreError("the store is closed"))
        self._close_watches()

    def _request_commit(self) -> None:
        if not self._manual:
            self.commit()
