"""Which revision was acknowledged last, kept beside the database, so that a start notices when the database has less.

SQLite ends the replay of its write-ahead log at the first frame whose checksum is wrong and says nothing: a byte that
flipped there takes every later commit with it. The mark is written after a commit is on disk and before anybody is
told, so it never promises more than was durable. It is not synced with every commit: after a crash of the process it is
exact, after a power cut it may lag, and then the frames behind the damaged one tell (`wal`).

It also notes which write-ahead log was copied into the database completely: damage to it afterwards does no harm.
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
"""The revision is stored a second time, changed by this, so that zeros and torn writes are no marks."""
_COPIED_AT = 512
_COPIED = struct.Struct("<8sQ")
_SUM = struct.Struct("<L")


@dataclass(frozen=True, slots=True)
class Copied:
    """The write-ahead log with these salts was copied up to this frame; all of it, at that moment."""

    salts: bytes
    frames: int


class HighWater:
    """Nothing here fails: without a mark the store works, and only damage may go unnoticed."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._descriptor).st_size < _SIZE:
                # Blocks that are there can be written on a full disk too.
                os.pwrite(self._descriptor, bytes(_SIZE - _COPIED_AT * 2), _COPIED_AT * 2)

    def read(self) -> int:
        """0 when there is none."""
        content = self._read(_MARK.size, 0)
        if len(content) < _MARK.size:
            return 0
        revision, check = _MARK.unpack(content)
        return int(revision) if revision ^ _CHECK == check else 0

    def note(self, revision: int) -> None:
        """Everything up to this revision is on disk. Takes a microsecond, on every commit."""
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
