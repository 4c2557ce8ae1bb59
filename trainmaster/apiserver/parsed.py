"""The objects of the newest records in parsed form, bounded in number, so that nobody parses what was just written.

A write leaves its object here (`State.put`); the view, its followers, the next patch and the garbage collector take it
from here. One that is not here is parsed and kept. The object hangs at its record, so a record that was undone or
replaced can never answer for another. All readers share it: whoever changes something copies the branch first.
"""

from __future__ import annotations

from collections import deque

from trainmaster.api.meta import Object
from trainmaster.apiserver import stored
from trainmaster.store.contract import StoredRecord

_LIMIT = 8192
"""Records that hold their object. About 30 MB when all of them are current, and far more than the active jobs need."""


_LIMIT_BYTES = 32 << 20
"""Of those records, as stored: parsed, an object takes several times as much, and a tenant decides how large it is."""


class ParsedObjects:
    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._records: deque[StoredRecord] = deque()
        self._bytes = 0

    def get(self, record: StoredRecord) -> Object:
        """The object as stored. Read-only."""
        memo: stored.RecordMemo | None = record.memo
        if memo is not None and memo.obj is not None:
            return memo.obj
        memo = stored.memo_of(record)
        obj = memo.obj = stored.parse(record.value)
        self.note(record)
        return obj

    def note(self, record: StoredRecord) -> None:
        """The record has got its object."""
        self._records.append(record)
        self._bytes += len(record.value)
        while len(self._records) > _LIMIT or self._bytes > _LIMIT_BYTES:
            oldest = self._records.popleft()
            self._bytes -= len(oldest.value)
            stored.memo_of(oldest).obj = None

    @staticmethod
    def drop(record: StoredRecord) -> None:
        """The record was replaced; readers that come late parse it again."""
        memo: stored.RecordMemo | None = record.memo
        if memo is not None:
            memo.obj = None
