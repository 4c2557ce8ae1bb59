"""One log in CRI entries (`shim.log_sink`), read from any place in both directions.

A place is the number of bytes before it, in all pieces of the log together, and always the beginning of an entry. Times
of entries never go back, so the entry of a time is found by bisection. A line that is stored in parts stands where its
last part stands, and has its time. If the clock of the machine was set back meanwhile, a time may be found at the wrong
one of two places.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trainmaster.jobs.logs.lines import MAX_TEXT, sort_key
from trainmaster.shim.log_sink import CLOSED, HEAD_BYTES, MAX_LINE, OPENED, SEAMS, describe_missing

_LONGEST = MAX_LINE + 64
"""Bytes of an entry."""
_NEAR = 1 << 16
"""What is searched line by line: longer than any entry."""
_BLOCK = 1 << 16
_LOOK = 1 << 17
"""How far before a line its other parts are looked for, where none was found yet."""
_MAX_PARTS = MAX_TEXT // MAX_LINE
_STAMP = 30


class LogBytes(Protocol):
    """Whole entries. Must be closed."""

    @property
    def size(self) -> int: ...

    def read(self, begin: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class FileBytes:
    """The pieces of a rotated log, as they are when it is opened. Takes over the descriptors, oldest first."""

    def __init__(self, files: Sequence[int]) -> None:
        self._files = list(files)
        self._sizes = [os.fstat(file).st_size for file in self._files]
        self._begins = [sum(self._sizes[:number]) for number in range(len(self._sizes))]
        self.size = sum(self._sizes)
        end = self.read(max(0, self.size - _LONGEST), _LONGEST)
        self.size -= len(end) - (end.rfind(b"\n") + 1)

    def read(self, begin: int, size: int) -> bytes:
        left = min(size, self.size - begin)
        number = bisect_right(self._begins, begin) - 1
        found: list[bytes] = []
        while left > 0 and number < len(self._files):
            offset = begin - self._begins[number]
            data = os.pread(self._files[number], min(left, self._sizes[number] - offset), offset)
            found.append(data)
            left -= len(data)
            begin += len(data)
            if not data and offset < self._sizes[number]:
                break  # it was cut off meanwhile
            number += offset + len(data) >= self._sizes[number]
        return b"".join(found)

    def locate(self, place: int) -> tuple[int, int]:
        """(file, offset)"""
        number = max(0, bisect_right(self._begins, place) - 1)
        return number, place - self._begins[number]

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files.clear()


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, begin: int, size: int) -> bytes:
        return self.content[begin : begin + size]

    def close(self) -> None:
        """Nothing is open."""


class StoredLine(NamedTuple):
    time: str
    text: bytes
    begin: int
    end: int
    """Of its last entry."""

    @property
    def key(self) -> str:
        """Its time, to compare."""
        return sort_key(self.time)


class _Entry(NamedTuple):
    time: str
    stream: bytes
    is_part: bool
    text: bytes


def _split_entry(entry: bytes) -> _Entry:
    """Copies from a cluster have times of other lengths than those of our shims."""
    time, stream, tag, text = (*entry.split(b" ", 3), b"", b"", b"")[:4]
    return _Entry(time.decode(errors="replace"), stream, tag == b"P", text)


def cut_heads(entries: Sequence[bytes]) -> list[bytes]:
    """The texts of whole lines."""
    return [entry[HEAD_BYTES:] if entry[29:31] == b"Z " else _split_entry(entry).text for entry in entries]


def read_time(entry: bytes) -> str:
    head = entry[:_STAMP] if entry[29:31] == b"Z " else entry.partition(b" ")[0]
    return head.decode(errors="replace")


def locate_entry(log: LogBytes, place: int) -> int:
    """The beginning of the first entry that begins there or later."""
    if place <= 0:
        return 0
    begin = place - 1
    for size in (512, _LONGEST):
        found = log.read(begin, size).find(b"\n")
        if found >= 0:
            return begin + found + 1
    return log.size


def locate_time(log: LogBytes, time: str, *, after: bool = False) -> int:
    """Where the entries begin that are not older than this time (as `sort_key` has it); `after`: that are newer."""

    def is_before(entry: bytes) -> bool:
        key = sort_key(read_time(entry))
        return key < time or (after and key == time)

    low, high = 0, log.size
    while high - low > _NEAR:
        middle = locate_entry(log, (low + high) // 2)
        if middle >= high:
            break
        if is_before(log.read(middle, HEAD_BYTES)):
            low = middle
        else:
            high = middle
    place = low
    for entry in log.read(low, high - low).split(b"\n")[:-1]:
        if not is_before(entry):
            return place
        place += len(entry) + 1
    return high


@dataclass(slots=True)
class _Open:
    """What began before a place: parts of lines, and the count of a closing seam."""

    parts: dict[bytes, list[bytes]] = field(default_factory=dict)
    closed: int = 0


def read_block(log: LogBytes, begin: int, end: int) -> list[StoredLine]:
    """The lines whose last entries are between these places."""
    raw = log.read(begin, end - begin)
    if not is_plain(log, begin, raw):
        return _read_parts(raw, begin, _locate_open(log, begin))
    entries = raw.split(b"\n")[:-1]
    lines, place = [], begin
    for entry, text in zip(entries, cut_heads(entries), strict=True):
        following = place + len(entry) + 1
        lines.append(StoredLine(read_time(entry), text, place, following))
        place = following
    return lines


def is_plain(log: LogBytes, begin: int, raw: bytes) -> bool:
    """Whether each of these entries, which begin there, is a line."""
    look = min(begin, _LOOK)
    return not _may_have_parts(raw) and not _may_have_parts(log.read(begin - look, look))


def _may_have_parts(raw: bytes) -> bool:
    # One character is found much more quickly than three.
    return b"P" in raw and b" P " in raw


def _read_parts(raw: bytes, begin: int, known: _Open) -> list[StoredLine]:
    lines: list[StoredLine] = []
    place = begin
    for content in raw.split(b"\n")[:-1]:
        entry, following = _split_entry(content), place + len(content) + 1
        if entry.stream == CLOSED:
            known.closed = _read_count(entry)
        elif entry.stream == OPENED:
            missing, known.closed = _read_count(entry) - known.closed, 0
            if missing > 0:
                text = describe_missing(missing, is_first=missing == _read_count(entry))
                lines.append(StoredLine(entry.time, text, place, following))
        else:
            parts = known.parts.setdefault(entry.stream, [])
            parts.append(entry.text)
            if not entry.is_part or len(parts) == _MAX_PARTS:
                lines.append(StoredLine(entry.time, b"".join(known.parts.pop(entry.stream)), place, following))
        place = following
    return lines


def _read_count(entry: _Entry) -> int:
    return int(entry.text) if entry.text.isdigit() else 0


def _locate_open(log: LogBytes, begin: int) -> _Open:
    """What was begun before that place, read from where it began."""
    known = _Open()
    place = min(locate_whole(log, begin), locate_entry(log, begin - _LONGEST))
    while place < begin:
        end = min(begin, locate_entry(log, place + _BLOCK))
        _read_parts(log.read(place, end - place), place, known)
        place = end
    return known


def locate_whole(log: LogBytes, place: int) -> int:
    """From where on all lines that end behind this place are whole. Goes back until it is known of both streams."""
    earliest = end = place
    begun, settled = set[bytes](), set[bytes]()
    while end > 0 and len(settled) < 2 and (place - end < _LOOK or begun - settled):
        start, offset = locate_entry(log, end - _BLOCK), end
        for content in reversed(log.read(start, end - start).split(b"\n")[:-1]):
            offset -= len(content) + 1
            entry = _split_entry(content)
            if entry.stream in SEAMS or entry.stream in settled:
                continue
            if entry.is_part:
                begun.add(entry.stream)
                earliest = offset
            else:
                settled.add(entry.stream)
        end = start
    return earliest


def locate_since(files: Sequence[int], time: str) -> tuple[int, int]:
    """(file, offset) from where on a reader finds all lines of this time and later, whole. `files`: descriptors, oldest
    first; they stay open."""
    log = FileBytes(files)
    place = locate_whole(log, locate_time(log, sort_key(time)))
    # A seam is compared with the one before it.
    place = locate_entry(log, max(0, place - _LONGEST))
    return log.locate(place)


def read_forward(log: LogBytes, begin: int) -> Iterator[StoredLine]:
    block = _BLOCK
    while begin < log.size:
        end = locate_entry(log, begin + block)
        yield from read_block(log, begin, end)
        begin, block = end, min(2 * block, 1 << 20)


def read_backward(log: LogBytes, end: int) -> Iterator[StoredLine]:
    """The last line first."""
    block = _BLOCK
    while end > 0:
        begin = locate_entry(log, end - block)
        yield from reversed(read_block(log, begin, end))
        end, block = begin, min(2 * block, 1 << 20)


def count_same(log: LogBytes, line: StoredLine) -> int:
    """How many lines of the same time stand before it."""
    begin = locate_time(log, line.key)
    return sum(one.key == line.key for one in read_block(log, begin, line.begin))


def skip_lines(log: LogBytes, begin: int, time: str, count: int) -> int:
    """The place after so many lines of this time."""
    for line in read_forward(log, begin) if count else ():
        if line.key != time or count == 0:
            break
        begin, count = line.end, count - 1
    return begin
