"""Stores with a planted bug. The harness is worth something only if it finds them."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.store.contract import Event, EventType
from trainmaster.store.sqlite import SqliteStore


class AckBeforeCommit(SqliteStore):
    """Says that a write is durable although it is only in memory."""

    async def durable(self, revision: int) -> None:
        return


class LostDelete(SqliteStore):
    """Compaction removes the deletion of a key but not what the deletion had superseded."""

    def _forget(self, events: Sequence[Event]) -> None:
        super()._forget([Event(event.type, event.record, None) for event in events if event.type is EventType.DELETE])


class ReusedRevision(SqliteStore):
    """Delivers events to outside watchers before they are durable."""

    def _request_commit(self) -> None:
        self.durable_revision = self.revision
        self._wake(self._pending, durable=True)
        super()._request_commit()


STORES = {
    "": SqliteStore,
    "ack_before_commit": AckBeforeCommit,
    "lost_delete": LostDelete,
    "reused_revision": ReusedRevision,
}
