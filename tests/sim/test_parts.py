"""The made-up parts of the simulation: time, disk, and the summary."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation.disk import Disk, SimStore
from tests.simulation.faults import CRASH_AFTER, CRASH_BEFORE, EMBEDDED
from tests.simulation.loop import Deadlock, Group, SimClock, SimLoop
from tests.simulation.many import Summary
from trainmaster.store.contract import StoreError

pytestmark = pytest.mark.sim


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop()
    yield made
    made.close()


def make_store(loop: SimLoop, disk: Disk, seconds: float = 1.0) -> SimStore:
    return SimStore(loop, disk, lambda: seconds, with_history=True)


def test_time_jumps_to_the_next_timer(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.wait_for(SimClock(loop).sleep(86_400), 90_000))
    assert loop.now == 86_400


def test_waiting_for_nothing_is_said(loop: SimLoop) -> None:
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_a_killed_group_takes_no_further_step(loop: SimLoop) -> None:
    group = Group("victim")
    steps: list[int] = []

    async def work() -> None:
        while True:
            steps.append(len(steps))
            await asyncio.sleep(1)

    async def parent() -> None:
        await asyncio.gather(loop.create_task(work()))

    async def main() -> None:
        loop.spawn(parent(), group=group, name="victim")
        await asyncio.sleep(2.5)
        group.kill()
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    assert steps == [0, 1, 2]


def test_a_crash_loses_what_was_not_on_its_way(loop: SimLoop) -> None:
    async def main() -> tuple[int, int]:
        disk = Disk({}, 0)
        store = make_store(loop, disk)
        store.put("b", "durable", b"1")
        await store.durable(1)
        store.put("b", "on its way", b"2")
        store.put("b", "behind it", b"3")
        lost = store.crash(lands=True)
        assert make_store(loop, disk).get("b", "on its way") is not None
        assert make_store(loop, disk).get("b", "behind it") is None
        with pytest.raises(StoreError):
            store.put("b", "late", b"4")
        return lost, make_store(loop, disk).revision

    assert loop.run_until_complete(main()) == (1, 2)


def test_a_commit_that_does_not_land_is_never_acknowledged(loop: SimLoop) -> None:
    async def main() -> int:
        disk = Disk({}, 0)
        store = make_store(loop, disk)
        store.put("b", "a", b"1")
        waiter = asyncio.ensure_future(store.durable(1))
        await asyncio.sleep(0.5)
        store.crash(lands=False)
        with pytest.raises(StoreError):
            await waiter
        await asyncio.sleep(5)
        return disk.revision

    assert loop.run_until_complete(main()) == 0


def test_a_fault_that_never_met_a_site_is_listed() -> None:
    site = f"{EMBEDDED} job: create pods"
    summary = Summary(hits=Counter({(site, ""): 3, (site, CRASH_AFTER): 1}))
    assert summary.list_misses() == [f"{site}: {CRASH_BEFORE}"]
