"""Token buckets: a burst, then a rate, each name for itself."""

from __future__ import annotations

import pytest

from trainmaster.kit.buckets import TokenBuckets
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_a_name_has_its_burst_and_then_its_rate() -> None:
    async def main() -> None:
        clock = VirtualClock()
        buckets = TokenBuckets(clock, per_second=0.5, burst=3)
        assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
        assert buckets.take("b")
        await clock.sleep(2.0)
        assert [buckets.take("a") for _ in range(2)] == [True, False]
        await clock.sleep(3600)
        assert [buckets.take("a") for _ in range(4)] == [True, True, True, False], "no more than the burst is saved up"

    run_virtual(main())


def test_names_that_rest_are_forgotten() -> None:
    async def main() -> None:
        clock = VirtualClock()
        buckets = TokenBuckets(clock, per_second=1.0, burst=2)
        for number in range(1500):
            buckets.take(str(number))
        await clock.sleep(10.0)
        for _ in range(1024):
            buckets.take("busy")
        assert len(buckets) == 1

    run_virtual(main())


def test_what_cost_more_is_charged_and_the_debt_is_bounded() -> None:
    async def main() -> None:
        buckets = TokenBuckets(VirtualClock(), per_second=2.0, burst=4)
        assert buckets.take("ann")
        buckets.charge("ann", 2.5)
        assert not buckets.take("ann")
        buckets.charge("ann", 1000)
        assert buckets.get_wait("ann") == 2.5
        assert buckets.take("bob")

    run_virtual(main())
