"""Folds the log of a file into the state in memory, once, at open. 100,000 objects of 2.6 KB take a third of a second.

The replay windows come back as they were (within their bounds), so that watches resume across a restart; what was
already outside of them and had not been removed yet becomes garbage again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw

from trainmaster.store import database
from trainmaster.store.compaction import Garbage
from trainmaster.store.contract import Event, EventType, Record
from trainmaster.store.names import SortedNames
from trainmaster.store.state import Bucket, StoreState, WindowLimits
from trainmaster.store.window import Window

_Entry = tuple[EventType, Record, Record | None]


def load(connection: apsw.Connection, state: StoreState, garbage: Garbage) -> None:
    """Fills an empty state. apsw.CorruptError when the file is damaged."""
    floor = database.read_meta(connection, "floor")
    floors: dict[str, int] = dict(connection.execute("SELECT bucket, rev FROM floors"))
    revision = database.read_meta(connection, "revision")
    limits = state.limits
    buckets: dict[str, Bucket] = {}
    entries: dict[str, list[_Entry]] = {}
    with _paused_gc():
        for bucket in floors:
            buckets[bucket] = Bucket(bucket, Window(max(floor, floors[bucket]), limits.events, limits.bytes))
        revision = max(revision, _fold(connection, limits, floor, buckets, entries, garbage))
        for bucket, found in entries.items():
            _fill_window(buckets[bucket].window, found, limits, garbage)
        for held in buckets.values():
            held.names = SortedNames(held.records)
    state.adopt(buckets, revision=revision, floor=floor)


def _fold(
    connection: apsw.Connection,
    limits: WindowLimits,
    floor: int,
    buckets: dict[str, Bucket],
    entries: dict[str, list[_Entry]],
    garbage: Garbage,
) -> int:
    """Replays all rows into records; collects per bucket what may belong to the window. Returns the last revision."""
    revision = 0
    # Locals and enum members outside of the loop: it runs once per stored object at every start.
    put, delete = EventType.PUT, EventType.DELETE
    query = "SELECT rev, bucket, name, op, created, value FROM log ORDER BY rev"
    for revision, bucket, name, op, created, value in connection.execute(query):
        held = buckets.get(bucket)
        if held is None:
            held = buckets[bucket] = Bucket(bucket, Window(floor, limits.events, limits.bytes))
        records = held.records
        previous = records.get(name)
        if previous is not None:
            name = previous.name
        record = Record(held.name, name, revision, created, value)
        if op == database.PUT:
            records[name] = record
        elif previous is not None:
            del records[name]
        if revision > held.window.floor:
            entries.setdefault(held.name, []).append((put if op == database.PUT else delete, record, previous))
            continue
        if previous is not None:
            garbage.add_row(previous.revision, held.name)
        if op == database.DELETE:
            garbage.add_row(revision, held.name)
    return revision


def _fill_window(window: Window, entries: Sequence[_Entry], limits: WindowLimits, garbage: Garbage) -> None:
    size = 0
    start = len(entries)
    while start > 0 and len(entries) - start < limits.events:
        size += len(entries[start - 1][1].value)
        if size > limits.bytes:
            break
        start -= 1
    for kind, record, previous in entries[:start]:
        if previous is not None:
            garbage.add_row(previous.revision, record.bucket)
        if kind is EventType.DELETE:
            garbage.add_row(record.revision, record.bucket)
    if start:
        window.floor = entries[start - 1][1].revision
    for entry in entries[start:]:
        window.append(Event(*entry))


@contextmanager
def _paused_gc() -> Iterator[None]:
    """Nothing here is garbage; without the pause the collector walks all records again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
