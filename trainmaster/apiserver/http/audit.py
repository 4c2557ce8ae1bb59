"""The audit log: one JSON line per admitted or refused write: who, what, and the result.

Bodies and headers are never written. Lines are collected and written once per iteration of the event loop; the file is
rotated at its maximum size, and a fixed number of old ones is kept. Lines that do not fit on a full disk are dropped,
counted, and reported in the file once there is space.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import orjson

log = logging.getLogger(__name__)

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_START = b'"metadata":{'
_NAME = b'"name":"'


def find_created_name(code: int, body: bytes | bytearray) -> str:
    """The name in the answer to a create, which the request's path does not contain.

    It is preceded only by plain fields of the server unless the object has owners, so a byte search almost always
    suffices.
    """
    start = body.find(_START, 0, 300) if code == 201 else -1
    if start < 0:
        return ""
    start += len(_START)
    found = body.find(_NAME, start)
    if found >= 0 and body.find(b"{", start, found) < 0:
        found += len(_NAME)
        name = body[found : body.index(b'"', found)]
        if b"\\" not in name:
            return name.decode()
    return str(orjson.loads(body)["metadata"].get("name", ""))


class AuditLog:
    def __init__(self, path: Path, *, max_bytes: int = 16 * 1024 * 1024, keep: int = 3) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._lines: list[bytes] = []
        self._scheduled = False
        self._dropped = 0
        self._closed = False
        self._file = -1
        self._size = 0
        self._open()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def write(self, entry: Mapping[str, object]) -> None:
        self._lines.append(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z))
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        if not self._lines or self._closed:
            return
        data = b"".join(self._lines)
        count = len(self._lines)
        self._lines.clear()
        if self._dropped:
            text = f"{self._dropped} lines were lost because the disk was full"
            data = orjson.dumps({"note": text}, option=orjson.OPT_APPEND_NEWLINE) + data
        try:
            self._append(data)
            self._dropped = 0
            if self._size >= self._max_bytes:
                self._rotate()
        except OSError as error:
            if not self._dropped:
                log.error("audit log not written", extra={"action": "audit.unwritten", "error": str(error)})
            self._dropped += count

    def _append(self, data: bytes) -> None:
        """All or nothing: a partial line would corrupt the next one."""
        if self._file < 0:
            self._open()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        for number in range(self._keep - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._open()

    def close(self) -> None:
        self.flush()
        self._closed = True
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
