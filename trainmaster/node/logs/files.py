"""The log files of one container attempt, read in order while the shim writes and rotates them.

A file keeps its inode when it is renamed, so a reader at the end of one finds its successor by searching for the inode:
`.log.2` is followed by `.log.1`, that by `.log`. A reader so slow that its file was deleted continues with the oldest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_TRIES = 20


class LogPieces:
    """Open descriptors, oldest first; must be closed."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._files: list[int] = []
        self._open_all()

    @property
    def files(self) -> Sequence[int]:
        return self._files

    def close(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files = []

    def skip_to(self, index: int, offset: int) -> None:
        for fd in self._files[:index]:
            os.close(fd)
        del self._files[:index]
        if self._files:
            os.lseek(self._files[0], offset, os.SEEK_SET)

    def read(self, size: int) -> tuple[bytes, bool]:
        """The next bytes, and whether there may be more: False if nothing was left, and what is written from now on
        changes the directory."""
        while True:
            data = os.read(self._files[0], size)
            if len(data) == size:
                return data, True
            if len(self._files) == 1 and not self._is_rotated():
                return data, False
            # The file was rotated, so it is complete, but it may have grown since it was read.
            data += os.read(self._files[0], size)
            if data:
                return data, True
            if len(self._files) == 1:
                self._open_successor()
            os.close(self._files.pop(0))

    def _is_rotated(self) -> bool:
        """Only a successor counts: a log without any name was deleted with its Pod."""
        try:
            return os.stat(self._path).st_ino != os.fstat(self._files[0]).st_ino
        except FileNotFoundError:
            return False

    def _open_successor(self) -> None:
        own = os.fstat(self._files[0]).st_ino
        for _ in range(_TRIES):
            names = self._list_names()
            inodes = [_get_inode(name) for name in names]
            later = names[inodes.index(own) + 1 :] if own in inodes else names
            for name in later:
                fd = _open(name)
                if fd is None:
                    break
                if os.fstat(fd).st_ino == inodes[names.index(name)]:
                    self._files.append(fd)
                    return
                os.close(fd)  # renamed meanwhile: try again
                break
        raise FileNotFoundError(self._path)

    def _open_all(self) -> None:
        for _ in range(_TRIES):
            before = [_get_inode(name) for name in self._list_names()]
            opened = [fd for fd in map(_open, self._list_names()) if fd is not None]
            self._files = opened
            if [os.fstat(fd).st_ino for fd in opened] == before:
                break
            self.close()
        if not self._files:
            raise FileNotFoundError(self._path)

    def _list_names(self) -> list[str]:
        """The oldest first."""
        folder, name = os.path.split(self._path)
        found = [entry for entry in os.listdir(folder) if entry.startswith(f"{name}.")]
        numbers = sorted(int(entry.rpartition(".")[2]) for entry in found if entry[len(name) + 1 :].isdigit())
        older = [f"{self._path}.{number}" for number in reversed(numbers)]
        return [*older, self._path] if os.path.exists(self._path) else older


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _get_inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0
