"""Removes log rows that are no longer needed, in short slices.

A row is garbage when the write that superseded it has left the replay window; a deletion also when it has left the
window itself. Garbage is removed in the order in which it arose, so the deletion of a key is removed after all earlier
rows of that key: a partial compaction never brings a deleted key back.

If possible a slice is part of a commit that happens anyway, and costs no extra fsync.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import apsw

from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock
from trainmaster.store.contract import Event, EventType

SLICE_ROWS = 512
_STEP_ROWS = 16
_DELETE = "DELETE FROM log WHERE rev IN (SELECT value FROM json_each(?))"
"""One statement for many rows: while the event loop is busy, a thread waits for the GIL after each statement, and 512
of them took 20 to 60 ms."""
_SET_FLOORS = "REPLACE INTO floors SELECT key, value FROM json_each(?)"


class Slice(NamedTuple):
    """Rows to remove, and what must be recorded with it so that nothing relies on them after a restart."""

    revisions: Sequence[int]
    floors: Mapping[str, int]
    revision: int


class Garbage:
    def __init__(self) -> None:
        self._rows: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, dropped: Sequence[Event]) -> None:
        """Adds the garbage from events that left the window."""
        for event in dropped:
            if event.previous is not None:
                self._rows.append((event.previous.revision, event.record.bucket))
            if event.type is EventType.DELETE:
                self._rows.append((event.record.revision, event.record.bucket))

    def add_row(self, revision: int, bucket: str) -> None:
        self._rows.append((revision, bucket))

    def peek(self, limit: int) -> list[tuple[int, str]]:
        return list(islice(self._rows, limit))

    def drop(self, count: int) -> None:
        """The first rows were removed and committed."""
        for _ in range(count):
            self._rows.popleft()


def remove_rows(connection: apsw.Connection, part: Slice, clock: Clock, budget: float | None) -> int:
    """Removes rows in the open transaction for about `budget` seconds at most; returns how many."""
    started = clock.monotonic()
    removed = 0
    size = len(part.revisions) if budget is None else _STEP_ROWS
    while removed < len(part.revisions):
        step = part.revisions[removed : removed + size]
        connection.execute(_DELETE, (f"[{','.join(map(str, step))}]",))
        removed += len(step)
        if budget is not None and clock.monotonic() - started >= budget:
            break
    connection.execute(_SET_FLOORS, (json.dumps(part.floors),))
    # The newest row may be removed; its revision must not be reused.
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'revision'", (part.revision,))
    failpoints.hit("store.compact")
    return removed
