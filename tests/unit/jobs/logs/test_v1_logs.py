"""The output of a v1 job, which replaces its Pods one by one under the same names: nothing twice and nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.support.logworld import LogWorld, V1LogWorld
from tests.unit.jobs.logs.test_logs import Act, end, finish, follow, read, remove, say, start
from trainmaster.jobs.logs.contract import JobLogOptions

pytestmark = pytest.mark.unit

LAST = JobLogOptions(last_attempt=True)
"""As `trainmaster logs` without options."""
FOLLOWED = JobLogOptions(follow=True, last_attempt=True)
BEGIN = (start("w0"), start("w1", rank=1), say("w0", "a"), say("w1", "b"))
REPLACED = (end("w0", 1), remove("w0"), start("w0", attempt=1), say("w0", "c"), say("w1", "d"))
OVER = (end("w0"), end("w1"), finish)


def read_v1(*acts: Act, wanted: JobLogOptions = LAST) -> list[str]:
    return read(*acts, wanted=wanted, make=V1LogWorld)


def follow_v1(*acts: Act) -> list[str]:
    return follow(*acts, wanted=FOLLOWED, make=V1LogWorld)


def at_once(*acts: Act) -> Act:
    async def act(world: LogWorld) -> None:
        for one in acts:
            await one(world)

    return act


def unseen(*acts: Act) -> Act:
    """Watches learn of it only afterwards."""

    async def act(world: LogWorld) -> None:
        world.sight.clear()
        for one in acts:
            await one(world)
        world.sight.set()

    return act


def test_lines_of_a_replaced_pod_and_of_its_successor_are_merged_with_those_of_the_others() -> None:
    wanted = ["0.0 a", "0.1 b", "0.0 c", "0.1 d"]
    assert read_v1(*BEGIN, *REPLACED) == wanted
    assert read_v1(*BEGIN, *REPLACED, wanted=JobLogOptions()) == wanted
    assert read_v1(*BEGIN, *REPLACED, wanted=JobLogOptions(attempt=1)) == ["0.0 c"]
    assert read_v1(*BEGIN, *REPLACED, wanted=JobLogOptions(tail=1)) == ["0.0 c", "0.1 d"]


def test_a_follower_shows_the_successor_while_the_other_ranks_run_on() -> None:
    assert follow_v1(*BEGIN, *REPLACED, say("w0", "e"), *OVER) == ["0.0 a", "0.1 b", "0.0 c", "0.1 d", "0.0 e"]


@pytest.mark.parametrize("hidden", [at_once, unseen])
def test_a_pod_that_is_replaced_while_nobody_looks(hidden: Callable[..., Act]) -> None:
    """The log that is read under the name of the old Pod would be that of the new one, so requests name the uid."""
    asked: list[str] = []

    async def look(world: LogWorld) -> None:
        asked.extend(options.uid for options in world.asked)

    change = hidden(say("w0", "last"), *REPLACED)
    found = follow_v1(*BEGIN, change, *OVER, look)
    assert sorted(found) == sorted(["0.0 a", "0.1 b", "0.0 last", "0.0 c", "0.1 d"])
    assert len(set(asked)) == 3 and all(asked)


def test_a_pod_that_no_watch_has_seen_comes_before_its_successor() -> None:
    again = (say("w0", "x"), end("w0", 1), remove("w0"), start("w0", attempt=2), say("w0", "y"))
    found = follow_v1(*BEGIN, unseen(*REPLACED, *again), *OVER)
    assert [line for line in found if line.startswith("0.0")] == ["0.0 a", "0.0 c", "0.0 x", "0.0 y"]
    assert len(found) == 6


def test_a_pod_deleted_by_hand_has_the_same_attempt() -> None:
    """Nobody counts it as a restart, and neither do suspending and resuming."""
    change: Sequence[Act] = (remove("w0"), start("w0"), say("w0", "c"))
    assert read_v1(*BEGIN, *change) == ["0.0 a", "0.1 b", "0.0 c"]
    assert follow_v1(*BEGIN, *change, *OVER) == ["0.0 a", "0.1 b", "0.0 c"]


def test_a_server_that_stops_while_a_pod_is_replaced() -> None:
    async def drain(world: LogWorld) -> None:
        world.drain()

    change = (drain, say("w0", "last"), unseen(*REPLACED), drain, say("w1", "e"))
    wanted = ["0.0 a", "0.1 b", "0.0 last", "0.0 c", "0.1 d", "0.1 e"]
    assert sorted(follow_v1(*BEGIN, *change, *OVER)) == sorted(wanted)
