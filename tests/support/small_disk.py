"""A small disk for tests of full disks: a tmpfs in the test's own directory, unmounted at the end.

    with small_disk(tmp_path / "disk", mib=64) as disk:
        disk.fill(leave=0)

A mount namespace of its own would need a process of its own; a lazy unmount in `finally` leaves nothing behind either.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

DEVICE = "test-disk"
"""What `mount` shows as its source, by which others know it for a test's."""
_MNT_DETACH = 2


@dataclass(frozen=True)
class SmallDisk:
    path: Path

    @property
    def free(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    @property
    def ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Fills the disk until only `leave` bytes are free."""
        descriptor = os.open(self.ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        block = bytes(64 * 1024)
        try:
            with suppress(OSError):
                while self.free > leave:
                    os.write(descriptor, block[: max(4096, min(len(block), self.free - leave))])
        finally:
            os.close(descriptor)

    def make_room(self) -> None:
        self.ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, *, mib: int = 64) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    libc = ctypes.CDLL(None, use_errno=True)
    path.mkdir(parents=True)
    if libc.mount(DEVICE.encode(), os.fsencode(path), b"tmpfs", 0, f"size={mib}m".encode()) != 0:
        pytest.skip(f"a small disk cannot be mounted: {os.strerror(ctypes.get_errno())}")
    try:
        yield SmallDisk(path)
    finally:
        libc.umount2(os.fsencode(path), _MNT_DETACH)
