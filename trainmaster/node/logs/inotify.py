"""One inotify descriptor for all followed logs: wakes readers when a file grows, without polling.

The kernel permits few instances per user (128), so there is one per process, with a watch per directory. The C
functions are called through ctypes; if they are missing (not Linux) the constructor raises OSError.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MODIFY = 0x00000002
_MOVED_FROM = 0x00000040
_CREATE = 0x00000100
_CHANGES = _MODIFY | _MOVED_FROM | _CREATE
_CLOEXEC = 0o2000000
_NONBLOCK = 0o4000
_HEADER = struct.Struct("iIII")


class Inotify:
    """For one event loop; must be closed."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._call(self._libc.inotify_init1(_CLOEXEC | _NONBLOCK))
        self._waiters: dict[int, set[asyncio.Event]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    @contextmanager
    def watch(self, path: Path) -> Iterator[asyncio.Event]:
        """Set whenever the file, or one in the directory, has grown, appeared or moved; the reader clears it."""
        watch = self._call(self._libc.inotify_add_watch(self._fd, os.fsencode(path), _CHANGES))
        event = asyncio.Event()
        waiters = self._waiters.setdefault(watch, set())
        waiters.add(event)
        try:
            yield event
        finally:
            waiters.discard(event)
            if not waiters:
                del self._waiters[watch]
                self._libc.inotify_rm_watch(self._fd, watch)

    def _call(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            watch, _, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            for event in self._waiters.get(watch, ()):
                event.set()
