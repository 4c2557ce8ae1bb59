"""Checks the free space on the home's disk every second, and keeps a reserve for deletes and status updates.

Below a threshold, users' writes that add data are refused with 507 (`apiserver.admission.disk_room`), so that the
remaining space is available for evictions, deletes and controllers. While there is enough space, some is reserved: free
pages inside the database (`store.spare`), and a small file in the home for the files that a start writes
(`app.home.folder`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from trainmaster.app.home.folder import Home
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import StoreError
from trainmaster.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

MIB = 1024**2
LOOK_SECONDS = 1.0
_SMALL_DISK = 4 * 1024 * MIB
"""With less free space than this, the reserve is made at once, otherwise after the server has run for a while."""
_WAIT_SECONDS = 60.0
_SHARE = 32
"""On a small disk the threshold is the total size divided by this."""


def decide_floor(total: int, reserve: int) -> int:
    """The number of free bytes below which users cannot add data."""
    return min(reserve, total // _SHARE)


def read_space(path: Path) -> tuple[int, int]:
    """(free, total) bytes of the disk."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


class DiskWatch:
    def __init__(self, home: Home, store: SqliteStore, clock: Clock, reserve: int) -> None:
        self._home = home
        self._store = store
        self._clock = clock
        self._reserve = reserve
        self._began = clock.monotonic()
        self.shortage = ""
        """Why users currently cannot add data; empty if they can."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DiskWatch]:
        self.look()
        async with Scope("disk") as scope:
            scope.spawn_forever(self._work(), name="disk.watch")
            yield self

    async def _work(self) -> None:
        while True:
            try:
                self.look()
                await self._put_aside()
            except (OSError, StoreError) as error:
                log.warning("disk not looked at", extra={"action": "disk.unseen", "error": str(error)})
            await self._clock.sleep(LOOK_SECONDS)

    def find_shortage(self) -> str:
        """Checks again before a write is refused, because space may have been freed since."""
        if self.shortage:
            self.look()
        return self.shortage

    def look(self) -> None:
        free, total = read_space(self._home.root)
        floor = decide_floor(total, self._reserve)
        # Hysteresis: the shortage ends only some way above the threshold.
        if free >= (2 * floor if self.shortage else floor):
            if self.shortage:
                log.info("the disk has room again", extra={"action": "disk.room", "free_mib": free // MIB})
            self.shortage = ""
            return
        if not self.shortage:
            log.error("the disk is nearly full", extra={"action": "disk.short", "free_mib": free // MIB})
        self.shortage = (
            f"the disk of {self._home.root} has {free / MIB:.1f} MiB left, and below {floor / MIB:.1f} MiB "
            "(storage.reserve_mib) nothing is added: delete what is not needed, or free some space"
        )

    async def _put_aside(self) -> None:
        if self.shortage or not self._reserve:
            return
        free, total = read_space(self._home.root)
        if free > _SMALL_DISK and self._clock.monotonic() - self._began < _WAIT_SECONDS:
            return
        self._home.make_reserve()
        size = min(self._reserve, total // _SHARE * 2)
        if free > 2 * size and not await self._store.fill_spare(size):
            log.warning("no room to put aside", extra={"action": "disk.not_put_aside"})
