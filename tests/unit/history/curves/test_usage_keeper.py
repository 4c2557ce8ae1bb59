"""Usage is measured every ten seconds and stored every minute; what has ended gets few points; a disk may be full."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from trainmaster.history.archive import ArchiveError
from trainmaster.history.curves.usage import RankUsage, UsagePoint
from trainmaster.history.curves.usage_keeper import JobUsage, UsageKeeper
from trainmaster.kit.scopes import Scope
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

RANKS = {("node", 0): RankUsage(1000, 64)}


@dataclass
class Store:
    points: list[tuple[str, UsagePoint]] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    condensed: list[str] = field(default_factory=list)
    long: list[str] = field(default_factory=list)
    is_full: bool = False

    async def add_usage(self, points: Sequence[tuple[str, UsagePoint]], thin: Sequence[str], now: int) -> None:
        self._check()
        self.points += points
        self.thinned += thin

    async def condense_usage(self, uids: Sequence[str]) -> None:
        self._check()
        self.condensed += uids

    async def list_long_usage(self) -> list[str]:
        return self.long

    def _check(self) -> None:
        if self.is_full:
            raise ArchiveError("cannot keep what jobs use: no space is left on the disk")


@dataclass
class Machine:
    jobs: list[str]
    measured: int = 0
    seconds: float = 0.0

    async def measure(self) -> Mapping[str, JobUsage]:
        self.measured += 1
        await asyncio.sleep(self.seconds)
        return dict.fromkeys(self.jobs, (0, RANKS))


def play(scene: Callable[[UsageKeeper, Machine, Store], Awaitable[None]], store: Store | None = None) -> None:
    async def main() -> None:
        machine, kept = Machine(["u1"]), store or Store()
        keeper = UsageKeeper(machine.measure, kept, VirtualClock())
        async with Scope("test") as scope:
            scope.spawn_forever(keeper.run(), name="test.usage")
            await scene(keeper, machine, kept)

    run_virtual(main(), limit=86_400)


def test_the_newest_points_are_in_memory_and_the_others_in_the_archive() -> None:
    async def scene(keeper: UsageKeeper, machine: Machine, store: Store) -> None:
        await asyncio.sleep(35)
        assert [len(keeper.list_pending(uid)) for uid in ("u1", "u2")] == [4, 0]
        assert store.points == []
        await asyncio.sleep(30)
        assert keeper.list_pending("u1") == [] and len(store.points) == 7
        times = [point.at for _, point in store.points]
        assert {later - earlier for earlier, later in itertools.pairwise(times)} == {10}
        await asyncio.sleep(20)
        await keeper.finish()
        assert len(store.points) == 9

    play(scene)


def test_older_points_are_merged_now_and_then_and_those_of_ended_jobs_once() -> None:
    async def scene(keeper: UsageKeeper, machine: Machine, store: Store) -> None:
        await asyncio.sleep(1300)
        assert store.thinned == ["u1", "u1"] and store.condensed == ["u0"]
        machine.jobs = []
        await asyncio.sleep(300)
        machine.jobs = ["u1"]
        await asyncio.sleep(60)
        machine.jobs = []
        await asyncio.sleep(500)
        assert store.condensed == ["u0"]
        await asyncio.sleep(300)
        assert store.condensed == ["u0", "u1"]

    # A job of an earlier server.
    play(scene, Store(long=["u0"]))


def test_a_full_disk_loses_only_what_does_not_fit_into_memory() -> None:
    async def scene(keeper: UsageKeeper, machine: Machine, store: Store) -> None:
        store.is_full = True
        await asyncio.sleep(605)
        assert len(keeper.list_pending("u1")) == 61
        store.is_full = False
        await asyncio.sleep(60)
        assert len(store.points) >= 61 and len({point.at for _, point in store.points}) == len(store.points)

    play(scene)


def test_measuring_takes_a_twentieth_of_the_time_at_most() -> None:
    async def scene(keeper: UsageKeeper, machine: Machine, store: Store) -> None:
        machine.seconds = 5.0
        await asyncio.sleep(1050)
        assert machine.measured <= 11

    play(scene)
