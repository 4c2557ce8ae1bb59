"""Inspects SQLite's write-ahead log after the point where its replay ended. Reads headers only.

A frame is a 24-byte header and a page; the header of a commit's last frame contains the size of the database. All
frames since the log was last reset carry the salts of the log's header, older ones do not. So a commit frame with the
right salts after the end of the replay is a commit that was written and cannot be read any more. A single one may be a
commit that a power failure interrupted before it was acknowledged; if there are two, the first was on disk before the
second began.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from trainmaster.store.database import FRAME_BYTES

_HEADER = struct.Struct(">8L")
_HEADER_BYTES = 32
_MAGIC = 0x377F0682
_FRAME = struct.Struct(">LL8s")


@dataclass(frozen=True, slots=True)
class Tail:
    salts: bytes = b""
    """The log's current salts; empty if it has none."""
    replayed: int = 0
    """Frames that SQLite reads."""
    last: int = 0
    """The last frame with those salts, whether or not SQLite reads it."""
    commits: int = 0
    """Commits after what SQLite reads."""


def build_path(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def inspect(path: Path, replayed: int) -> Tail:
    """`replayed`: how many valid frames SQLite found."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Tail()
    try:
        salts = _read_salts(descriptor)
        last, commits = replayed, 0
        for number in range(replayed + 1, (os.fstat(descriptor).st_size - _HEADER_BYTES) // FRAME_BYTES + 1):
            page, size, found = _FRAME.unpack(os.pread(descriptor, _FRAME.size, _offset(number)))
            if page and salts and found == salts:
                last = number
                commits += size > 0
        return Tail(salts, replayed, last, commits)
    finally:
        os.close(descriptor)


def read_salts(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_salts(descriptor)
    finally:
        os.close(descriptor)


def _read_salts(descriptor: int) -> bytes:
    header = os.pread(descriptor, _HEADER_BYTES, 0)
    if len(header) == _HEADER_BYTES and _is_whole(header):
        return header[16:24]
    # SQLite ignores the whole log if its header is damaged; the first frame has the salts too.
    frame = os.pread(descriptor, _FRAME.size, _offset(1))
    salts: bytes = _FRAME.unpack(frame)[2] if len(frame) == _FRAME.size else b""
    return salts if any(salts) else b""


def _offset(frame: int) -> int:
    return _HEADER_BYTES + (frame - 1) * FRAME_BYTES


def _is_whole(header: bytes) -> bool:
    """SQLite's checksum over the first 24 bytes; the lowest bit of the magic number is the byte order."""
    values = _HEADER.unpack(header)
    if values[0] & ~1 != _MAGIC:
        return False
    words = struct.unpack(">6L" if values[0] & 1 else "<6L", header[:24])
    first = second = 0
    for left, right in zip(words[::2], words[1::2], strict=True):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return (first, second) == values[6:]
