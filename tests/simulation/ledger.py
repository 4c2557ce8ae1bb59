"""The history of a simulated installation: which jobs have a record, and the effect that writes one.

Records are on a separate disk and survive crashes; a process reads them when it starts. Writing takes time, fails while
that disk is full, and may be interrupted by a crash just before or just after the record is stored. Half of the worlds
with retention have a history (`retention_plans.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.faults import ARCHIVE_SITE, CRASH_AFTER, CRASH_BEFORE, FULL
from tests.simulation.steps import BUCKETS, find_verdict
from tests.simulation.world import World
from trainmaster.api.meta import Object

NO_SPACE = "no space left on the disk of the history"


class SimLedger:
    def __init__(self, world: World) -> None:
        self._world = world
        self.records: dict[str, str] = {}
        """Durable: uid to the recorded end."""
        self.moments: dict[str, float] = {}
        """When each was first written."""
        self._kept: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._crash: Callable[[], None]
        self._durable: Callable[[int], Awaitable[None]]

    def begin_life(self, crash: Callable[[], None], durable: Callable[[int], Awaitable[None]]) -> None:
        """Called when the process starts: reads what is on disk."""
        self._crash, self._durable = crash, durable
        self._kept = set(self.records)
        self._troubles = {}

    def is_archived(self, uid: str) -> bool:
        return uid in self._kept

    def find_trouble(self, uid: str) -> str | None:
        return self._troubles.get(uid)

    async def archive(self, job: Object) -> bool:
        world, meta = self._world, job["metadata"]
        fault = world.strike(ARCHIVE_SITE)
        await self._durable(int(meta["resourceVersion"]))
        await asyncio.sleep(world.draw_commit_time())
        if fault == CRASH_BEFORE:
            self._die()
        if fault == FULL:
            before = self._troubles.get(meta["uid"])
            self._troubles[meta["uid"]] = NO_SPACE
            return before != NO_SPACE
        self.records[meta["uid"]] = find_verdict(BUCKETS[job["kind"]], job)
        self.moments.setdefault(meta["uid"], world.loop.now)
        world.trace.note("ledger", f"has {meta['name']} uid {meta['uid'][:8]}: {self.records[meta['uid']]}")
        if fault == CRASH_AFTER:
            self._die()
        self._kept.add(meta["uid"])
        self._troubles.pop(meta["uid"], None)
        return True

    def _die(self) -> None:
        self._crash()
        raise asyncio.CancelledError
