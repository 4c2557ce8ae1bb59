"""A disk that keeps only what was synced: a SQLite file layer (VFS) that can lose its power.

While it runs, files look as programs see them (the page cache). Beside that it knows what a power cut leaves: the
content at the last sync, plus any subset of the sectors written since, each of them whole or not at all. After the cut
every call fails; `reboot` puts onto the real disk what was left.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

_SECTOR = 512


class _Image:
    """One file: what is certain, and what was written since the last sync."""

    def __init__(self, content: bytes) -> None:
        self.synced = bytearray(content)
        self.unsynced: list[tuple[int, bytes | None]] = []
        """(offset, data); data None is a truncation to the offset."""

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.synced, change)
        self.unsynced = []

    def after_power_cut(self, rng: random.Random) -> bytes:
        content = bytearray(self.synced)
        for offset, data in self.unsynced:
            if data is None:
                if rng.random() < 0.5:
                    _apply(content, (offset, None))
                continue
            for start in range(0, len(data), _SECTOR):
                if rng.random() < 0.5:
                    _apply(content, (offset + start, data[start : start + _SECTOR]))
        return bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes | None]) -> None:
    offset, data = change
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class TornDisk(apsw.VFS):
    """Registered under `name`; the power fails at the call number `cut_after`."""

    def __init__(self, name: str, rng: random.Random, cut_after: int) -> None:
        super().__init__(name, "")
        self._rng = rng
        self._calls_left = cut_after
        self._images: dict[str, _Image] = {}
        self.syncs = 0

    @property
    def has_power(self) -> bool:
        return self._calls_left > 0

    def spend(self) -> None:
        """One more call reaches the disk, or the power is gone."""
        self._calls_left -= 1
        if self._calls_left <= 0:
            raise apsw.IOError("the power failed")

    def image_of(self, path: str) -> _Image:
        if path not in self._images:
            file = Path(path)
            self._images[path] = _Image(file.read_bytes() if file.exists() else b"")
        return self._images[path]

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _TornFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.spend()
        self._images.pop(filename, None)
        super().xDelete(filename, syncdir)

    def reboot(self) -> None:
        """Takes the layer away and leaves on the real disk what a power cut at this moment leaves."""
        self.unregister()
        for path, image in self._images.items():
            if Path(path).exists():
                Path(path).write_bytes(image.after_power_cut(self._rng))


class _TornFile(apsw.VFSFile):
    def __init__(self, disk: TornDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._image = disk.image_of(path)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.spend()
        self._image.unsynced.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.spend()
        self._image.unsynced.append((newsize, None))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.spend()
        self._disk.syncs += 1
        self._image.sync()


@contextmanager
def quiet_about_lost_power() -> Iterator[None]:
    """SQLite closes files on the dead disk and has nobody to tell that it fails; that is no news here."""
    usual = sys.unraisablehook

    def hook(report: Any) -> None:
        if not isinstance(report.exc_value, apsw.IOError):
            usual(report)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
