"""Calls at a rate: a burst at once, the others evenly and in order."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.kit.pace import Pace
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_a_burst_passes_at_once_and_the_others_in_order() -> None:
    async def main() -> None:
        clock = VirtualClock()
        pace = Pace(clock, per_second=2.0, burst=3)
        passed: list[tuple[int, float]] = []

        async def call(number: int) -> None:
            await pace.wait()
            passed.append((number, round(clock.monotonic(), 3)))

        await asyncio.gather(*(call(number) for number in range(6)))
        assert passed == [(0, 0.0), (1, 0.0), (2, 0.0), (3, 0.5), (4, 1.0), (5, 1.5)]
        await clock.sleep(100)
        passed.clear()
        await asyncio.gather(*(call(number) for number in range(4)))
        assert [moment for _, moment in passed] == [101.5] * 3 + [102.0], "more than a burst is not saved up"

    run_virtual(main())
