"""An in-memory store: writes are durable immediately. For tests and dry runs.

It passes the same contract suite as `sqlite.SqliteStore`. With `manual=True` nothing is durable until `commit` is
called, so that a test can act between a write and its commit.
"""

from __future__ import annotations

from trainmaster.store.contract import StoreError
from trainmaster.store.state import DEFAULT_LIMITS, StoreState, WindowLimits


class MemoryStore(StoreState):
    def __init__(self, limits: WindowLimits = DEFAULT_LIMITS, *, manual: bool = False) -> None:
        super().__init__(limits)
        self._manual = manual

    def commit(self) -> None:
        """Makes everything written so far durable."""
        if self._pending:
            self._acknowledge(self._take_pending())

    def close(self) -> None:
        self._fail(StoreError("the store is closed"))
        self._close_watches()

    def _request_commit(self) -> None:
        if not self._manual:
            self.commit()
