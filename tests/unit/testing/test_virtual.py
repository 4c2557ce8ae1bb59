from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from trainmaster.testing.virtual import START, Deadlock, OutOfTime, VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit


def test_a_month_passes_without_waiting_and_wall_time_follows() -> None:
    async def main() -> None:
        clock = VirtualClock()
        await clock.sleep(29 * 86_400)
        assert clock.now() == START + timedelta(days=29)
        assert clock.boot() == pytest.approx(29 * 86_400)

    run_virtual(main())


def test_timers_fire_in_order_of_their_time() -> None:
    async def main() -> None:
        order: list[int] = []

        async def wait(seconds: int) -> None:
            await asyncio.sleep(seconds)
            order.append(seconds)

        await asyncio.gather(*(wait(seconds) for seconds in (30, 10, 20)))
        assert order == [10, 20, 30]

    run_virtual(main())


def test_time_does_not_jump_over_work_in_an_executor() -> None:
    async def main() -> None:
        async with asyncio.timeout(1):
            await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.02)
        async with asyncio.timeout(1):
            await asyncio.to_thread(time.sleep, 0.02)
        assert VirtualClock().monotonic() == 0

    run_virtual(main())


def test_a_deadlock_names_who_waits() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="stuck"):
        run_virtual(stuck())


def test_waiting_in_circles_ends_at_the_limit() -> None:
    async def circles() -> None:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(OutOfTime, match="3600"):
        run_virtual(circles(), limit=3600)


def test_a_step_of_the_wall_clock_leaves_the_other_times_alone() -> None:
    async def main() -> None:
        clock = VirtualClock()
        await clock.sleep(10)
        clock.step_wall(-3600)
        assert clock.now() == START + timedelta(seconds=10 - 3600)
        assert clock.boot() == clock.monotonic() == pytest.approx(10)

    run_virtual(main())


def test_outside_of_a_loop_time_stands_until_it_is_moved() -> None:
    clock = VirtualClock()
    assert clock.now() == START
    clock.advance(5)
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=5), 5)


def test_settle_lets_everything_run_that_needs_no_time() -> None:
    async def main() -> None:
        event = asyncio.Event()

        async def chain() -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            event.set()

        task = asyncio.ensure_future(chain())
        await settle()
        assert event.is_set() and VirtualClock().monotonic() == 0
        await task

    run_virtual(main())
