"""A bounded cache of parsed objects, so that recently written objects need not be parsed.

A write adds its object (`RegistryState.put`); the view, its followers, the next patch and the garbage collector read
it. Missing objects are parsed and added. Objects are attached to their record, so they can never be stale. All readers
share them: copy the branch that you change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_labels
from trainmaster.apiserver import stored
from trainmaster.store.contract import StoredRecord

_LIMIT = 8192
"""Maximum number of cached objects, about 30 MB; far more than active jobs need."""


_LIMIT_BYTES = 32 << 20
"""Maximum size of their stored form, because tenants decide how large objects are. Parsed, they take several
times as much."""


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
        obj = stored.parse(record.value)
        if memo is None:
            memo = record.memo = stored.RecordMemo(read_labels(obj))
        memo.obj = obj
        self.note(record)
        return obj

    def get_all(self, records: Sequence[StoredRecord]) -> list[Object]:
        """Like `get` for each; most of them are there already."""
        memos = [record.memo for record in records]
        return [
            self.get(record) if memo is None or memo.obj is None else memo.obj
            for record, memo in zip(records, memos, strict=True)
        ]

    def note(self, record: StoredRecord) -> None:
        """Called when an object is attached to the record."""
        self._records.append(record)
        self._bytes += record.size
        while len(self._records) > _LIMIT or self._bytes > _LIMIT_BYTES:
            oldest = self._records.popleft()
            self._bytes -= oldest.size
            stored.memo_of(oldest).obj = None

    @staticmethod
    def drop(record: StoredRecord) -> None:
        """Called when the record is replaced; later readers of it have to parse it again."""
        memo: stored.RecordMemo | None = record.memo
        if memo is not None:
            memo.obj = None
