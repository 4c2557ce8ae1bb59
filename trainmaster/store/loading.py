"""Loads the log into memory when the store is opened. 100,000 objects of 2.6 KB take half a second of CPU.

The replay windows are restored (within their bounds), so that watches can resume after a restart; rows outside them
that were not removed yet become garbage again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import apsw

from trainmaster.kit.untracked import untrack
from trainmaster.store import database
from trainmaster.store.compaction import Garbage
from trainmaster.store.contract import Event, EventType, StoredRecord
from trainmaster.store.names import SortedNames
from trainmaster.store.packing import Dictionaries, PackedRecord, unpack
from trainmaster.store.state import Bucket, StoreState, WindowLimits
from trainmaster.store.window import Window

_Entry = tuple[EventType, StoredRecord, StoredRecord | None]
_Read = Callable[[str, str, int, int, bytes], StoredRecord]


def load(
    connection: apsw.Connection, state: StoreState, garbage: Garbage, dictionaries: Dictionaries, version: str
) -> None:
    """Fills an empty state. Raises apsw.CorruptError if the file is damaged.

    What another version of the program has settled is not settled: this one may have something to do for objects that
    were at rest. Their values are unpacked in memory.
    """
    settled = database.read_settled(connection, version)
    floor = database.read_meta(connection, "floor")
    revision = database.read_meta(connection, "revision")
    limits = state.limits
    slots: dict[str, _Slot] = {}
    with _paused_gc():
        for bucket, own_floor in connection.execute("SELECT bucket, rev FROM floors"):
            slots[bucket] = _Slot(bucket, Window(max(floor, own_floor), limits.events, limits.bytes))
        pattern = Window(floor, limits.events, limits.bytes)
        read = _read_packed if settled else _unpack
        revision = max(revision, _fold(connection, slots, pattern, garbage, partial(read, dictionaries)))
        for slot in slots.values():
            _fill_window(slot.held.window, slot.entries, limits, garbage)
            slot.held.names = SortedNames(slot.records)
    state.adopt({bucket: slot.held for bucket, slot in slots.items()}, revision=revision, floor=floor)
    state.settled_revision = settled


class _Slot:
    """A bucket while it is loaded."""

    __slots__ = ("entries", "floor", "held", "records")

    def __init__(self, bucket: str, window: Window) -> None:
        self.held = Bucket(bucket, window)
        self.records = self.held.records
        self.floor = window.floor
        self.entries: list[_Entry] = []
        """Writes above the floor: the window, and possibly more than fits."""


def _fold(
    connection: apsw.Connection,
    slots: dict[str, _Slot],
    pattern: Window,
    garbage: Garbage,
    read_packed: _Read,
) -> int:
    """Replays all rows into records and collects candidates for the windows. Returns the last revision."""
    revision = 0
    # Runs once per stored object at every start: local variables are faster than attributes.
    put, delete, op_packed = EventType.PUT, EventType.DELETE, database.PACKED
    query = "SELECT rev, bucket, name, op, created, value FROM log ORDER BY rev"
    for revision, bucket, name, op, created, value in connection.execute(query):
        slot = slots.get(bucket)
        if slot is None:
            window = Window(pattern.floor, pattern.max_events, pattern.max_bytes)
            slot = slots[bucket] = _Slot(bucket, window)
        previous = slot.records.get(name)
        if previous is not None:
            name = previous.name
        make = read_packed if op == op_packed else StoredRecord
        record = make(slot.held.name, name, revision, created, value)
        untrack(record)
        if op:
            slot.records[name] = record
        elif previous is not None:
            del slot.records[name]
        if revision > slot.floor:
            slot.entries.append((put if op else delete, record, previous))
            continue
        if previous is not None:
            garbage.add_row(previous.revision, bucket)
        if not op:
            garbage.add_row(revision, bucket)
    return revision


def _read_packed(
    known: Dictionaries, bucket: str, name: str, revision: int, created: int, value: bytes
) -> StoredRecord:
    return PackedRecord(bucket, name, revision, created, value, known.get_of(value))


def _unpack(known: Dictionaries, bucket: str, name: str, revision: int, created: int, value: bytes) -> StoredRecord:
    return StoredRecord(bucket, name, revision, created, unpack(value, known.get_of(value).value))


def _fill_window(window: Window, entries: Sequence[_Entry], limits: WindowLimits, garbage: Garbage) -> None:
    size = 0
    start = len(entries)
    while start > 0 and len(entries) - start < limits.events:
        size += entries[start - 1][1].size
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
        event = Event(*entry)
        untrack(event)
        window.append(event)


@contextmanager
def _paused_gc() -> Iterator[None]:
    """Nothing here is garbage; otherwise the collector would visit all records repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
