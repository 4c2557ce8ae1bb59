"""Measures what the jobs of this machine use, every 10 seconds, and has it stored every minute.

What was measured since the last minute is in memory only, so the end of the server loses at most that. A job that has
not run for ten minutes (it has ended, or waits) gets as few points as its record has; so do jobs that ended while there
was no server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from trainmaster.history.archive import ArchiveError
from trainmaster.history.curves.usage import RankUsage, Seat, UsagePoint
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
_LEAST_PAUSE = 20.0
"""How many times longer than the measuring the pause is at least, so that it takes little of the machine."""
_WRITE_SECONDS = 60.0
_THIN_SECONDS = 600.0
"""How often older points of a running job are merged, and how long a job has not run that gets few."""
_MOST_PENDING = 10_000
"""Points in memory while the disk cannot be written; the oldest are dropped."""

JobUsage = tuple[int, Mapping[Seat, RankUsage]]
"""(attempt, what each of its ranks uses)"""
MeasureJobs = Callable[[], Awaitable[Mapping[str, JobUsage]]]
"""Of all jobs that run here, by uid."""


class UsageStore(Protocol):
    """The keeper of the archive. All raise ArchiveError."""

    async def add_usage(self, points: Sequence[tuple[str, UsagePoint]], thin: Sequence[str], now: int) -> None: ...

    async def condense_usage(self, uids: Sequence[str]) -> None: ...

    async def list_long_usage(self) -> list[str]: ...


class UsageKeeper:
    def __init__(self, measure: MeasureJobs, store: UsageStore, clock: Clock) -> None:
        self._measure = measure
        self._store = store
        self._clock = clock
        self._pending: list[tuple[str, UsagePoint]] = []
        """Measured and not stored yet."""
        self._seen: dict[str, float] = {}
        """When each job ran last, in boot time; until it has few points."""
        self._thinned: dict[str, float] = {}
        self._written = 0.0

    def list_pending(self, uid: str) -> list[UsagePoint]:
        """The newest points of a job, which are not in the archive yet."""
        return [point for name, point in self._pending if name == uid]

    async def run(self) -> None:
        """For ever."""
        now = self._written = self._clock.boot()
        try:
            self._seen = dict.fromkeys(await self._store.list_long_usage(), now)
        except ArchiveError as error:
            _report(error)
        while True:
            began = self._clock.monotonic()
            try:
                await self._look()
            except OSError as error:
                log.warning("usage not measured", extra={"action": "usage.failed", "error": str(error)})
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(PERIOD_SECONDS - spent, spent * _LEAST_PAUSE))

    async def finish(self) -> None:
        """Stores what is left when the server stops."""
        await self._write(())

    async def _look(self) -> None:
        found, now = await self._measure(), self._clock.boot()
        at = int(self._clock.unix())
        for uid, (attempt, ranks) in found.items():
            self._seen[uid] = now
            self._thinned.setdefault(uid, now)
            self._pending.append((uid, UsagePoint(at, attempt, ranks)))
        if now - self._written >= _WRITE_SECONDS:
            self._written = now
            due = [uid for uid in found if now - self._thinned[uid] >= _THIN_SECONDS]
            await self._write(due)
            self._thinned.update(dict.fromkeys(due, now))
            await self._condense([uid for uid, seen in self._seen.items() if now - seen >= _THIN_SECONDS])

    async def _write(self, thin: Sequence[str]) -> None:
        pending = list(self._pending)
        if not pending and not thin:
            return
        try:
            await self._store.add_usage(pending, thin, int(self._clock.unix()))
        except ArchiveError as error:
            _report(error)
            del self._pending[:-_MOST_PENDING]
        else:
            del self._pending[: len(pending)]

    async def _condense(self, uids: Sequence[str]) -> None:
        if not uids:
            return
        try:
            await self._store.condense_usage(uids)
        except ArchiveError as error:
            _report(error)
            return
        for uid in uids:
            del self._seen[uid]
            self._thinned.pop(uid, None)


def _report(error: ArchiveError) -> None:
    log.warning("usage not written", extra={"action": "history.failed", "error": str(error)})
