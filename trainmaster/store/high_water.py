"""Keeps the last acknowledged revision beside the database, so that a start notices lost writes.

SQLite stops replaying its write-ahead log at the first frame with a wrong checksum, silently: one flipped byte loses
every later commit. The mark is written after a commit is on disk and before anybody is told, so it never promises more
than was durable. It is not synced with every commit: after a process crash it is exact, after a power failure it may
lag behind, and then the frames after the damaged one are used (`wal`).

It also records which write-ahead log was copied into the database completely: later damage to that log is harmless.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE = "store.mark"

_SIZE = 4096
_MARK = struct.Struct("<QQ")
_CHECK = 0x5A5A_5A5A_5A5A_5A5A
"""The revision is stored a second time, XORed with this, so that zeros and torn writes are not valid marks."""
_COPIED_AT = 512
_COPIED = struct.Struct("<8sQ")
_SUM = struct.Struct("<L")


@dataclass(frozen=True, slots=True)
class Copied:
    """The write-ahead log with these salts was completely copied, up to this frame."""

    salts: bytes
    frames: int


class HighWater:
    """Never fails: without a mark the store works, but damage may go unnoticed."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._descriptor).st_size < _SIZE:
                # Allocated blocks can be written even on a full disk.
                os.pwrite(self._descriptor, bytes(_SIZE - _COPIED_AT * 2), _COPIED_AT * 2)

    def read(self) -> int:
        """0 if there is none."""
        content = self._read(_MARK.size, 0)
        if len(content) < _MARK.size:
            return 0
        revision, check = _MARK.unpack(content)
        return int(revision) if revision ^ _CHECK == check else 0

    def note(self, revision: int) -> None:
        """Everything up to this revision is on disk. Takes a microsecond per commit."""
        with suppress(OSError):
            os.pwrite(self._descriptor, _MARK.pack(revision, revision ^ _CHECK), 0)

    def read_copied(self) -> Copied | None:
        content = self._read(_COPIED.size + _SUM.size, _COPIED_AT)
        body = content[: _COPIED.size]
        if len(content) < _COPIED.size + _SUM.size or _SUM.pack(zlib.crc32(body)) != content[_COPIED.size :]:
            return None
        salts, frames = _COPIED.unpack(body)
        return Copied(salts, frames) if frames else None

    def note_copied(self, copied: Copied) -> None:
        body = _COPIED.pack(copied.salts, copied.frames)
        with suppress(OSError):
            os.pwrite(self._descriptor, body + _SUM.pack(zlib.crc32(body)), _COPIED_AT)

    def sync(self) -> None:
        with suppress(OSError):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, size: int, offset: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError:
            return b""
