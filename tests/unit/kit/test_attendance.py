"""Since when a process has been at work."""

from __future__ import annotations

import pytest

from trainmaster.kit.attendance import Attendance
from trainmaster.kit.scopes import Scope
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_it_counts_from_the_start() -> None:
    async def act() -> None:
        clock = VirtualClock()
        attendance = Attendance(clock)
        async with Scope("test") as scope:
            scope.spawn_forever(attendance.run(), name="attendance")
            await clock.sleep(1000)
            assert attendance.count_seconds() == 1000

    run_virtual(act())


def test_a_pause_begins_it_anew_even_before_it_was_noticed() -> None:
    async def act() -> None:
        clock = VirtualClock()
        attendance = Attendance(clock)
        async with Scope("test") as scope:
            scope.spawn_forever(attendance.run(), name="attendance")
            await clock.sleep(1005)
            # The machine sleeps: boot time goes on, and timers do not.
            clock.advance(3600)
            assert attendance.count_seconds() == 0
            await clock.sleep(100)
            assert attendance.count_seconds() == 95

    run_virtual(act())


def test_who_takes_over_counts_from_then_on() -> None:
    async def act() -> None:
        clock = VirtualClock()
        attendance = Attendance(clock)
        await clock.sleep(500)
        attendance.begin()
        await clock.sleep(20)
        assert attendance.count_seconds() == 20

    run_virtual(act())
