"""Shares of the loop's time: who used more than a share waits, in order, and only while others ask."""

from __future__ import annotations

import pytest

from trainmaster.kit.shares import LONGEST_SECONDS, LoopShares
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def use(shares: LoopShares, name: str, seconds: float, times: int) -> list[float]:
    """So many requests at one moment; how long each of them has to wait."""
    waits = []
    for _ in range(times):
        waits.append(shares.plan(name))
        if not waits[-1]:
            shares.note(name, seconds, waited=False)
    return waits


def test_who_asks_alone_never_waits() -> None:
    shares = LoopShares(VirtualClock(), 0.1)
    assert set(use(shares, "ann", 0.01, 100)) == {0.0}


def test_turns_of_one_name_follow_each_other_and_others_do_not_wait() -> None:
    shares = LoopShares(VirtualClock(), 0.1)
    shares.plan("bob")
    waits = use(shares, "ann", 0.01, 20)
    served = waits.count(0.0)
    assert 0 < served < 8, "a burst"
    later = waits[served:]
    assert later == sorted(later) and len(set(later)) == len(later), "one after the other"
    assert shares.plan("bob") == 0.0


def test_in_the_mean_a_name_gets_its_share() -> None:
    async def main() -> None:
        clock = VirtualClock()
        shares = LoopShares(clock, 0.1)
        begin, used = clock.monotonic(), 0.0
        while clock.monotonic() - begin < 60:
            shares.plan("bob")
            wait = shares.plan("ann")
            await clock.sleep(max(wait, 0.01))
            shares.note("ann", 0.01, waited=wait > 0)
            used += 0.01
        assert 0.09 < used / 60 < 0.11

    run_virtual(main())


def test_time_passes_and_neighbours_leave() -> None:
    async def main() -> None:
        clock = VirtualClock()
        shares = LoopShares(clock, 0.1)
        shares.plan("bob")
        assert use(shares, "ann", 0.5, 40)[-1] > 0
        await clock.sleep(1.5)
        assert shares.plan("ann") == 0.0, "nobody else has asked for a second"
        shares.plan("bob")
        assert shares.plan("ann") > 0
        await clock.sleep(30)
        shares.plan("bob")
        assert shares.plan("ann") == 0.0, "it is paid for"

    run_virtual(main())


def test_one_request_makes_the_next_wait_for_a_second_at_most() -> None:
    async def main() -> None:
        clock = VirtualClock()
        shares = LoopShares(clock, 0.1)
        for _ in range(20):
            shares.plan("bob")
            wait = shares.plan("ann")
            assert wait <= 1.001
            await clock.sleep(wait)
            shares.note("ann", 30.0, waited=wait > 0)

    run_virtual(main())


def test_who_was_alone_owes_little_when_others_come() -> None:
    shares = LoopShares(VirtualClock(), 0.1)
    use(shares, "ann", 0.05, 1000)
    shares.plan("bob")
    assert shares.plan("ann") <= 0.5


def test_what_would_wait_too_long_takes_no_turn() -> None:
    shares = LoopShares(VirtualClock(), 0.1)
    shares.plan("bob")
    waits = use(shares, "ann", 0.05, 1000)
    assert waits[-1] == waits[-2] > LONGEST_SECONDS


def test_an_administrator_counts_as_a_neighbour() -> None:
    clock = VirtualClock()
    shares = LoopShares(clock, 0.1)
    shares.note_arrival("root", clock.monotonic())
    assert use(shares, "ann", 0.05, 10)[-1] > 0
