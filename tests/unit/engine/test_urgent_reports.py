"""Reports let urgent requests of all controllers go first, so that one look sees several of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainmaster.engine.queue import PATIENCE, QueuePace, WorkQueue
from trainmaster.engine.source import is_report
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def make_queues(clock: VirtualClock) -> tuple[WorkQueue[str], WorkQueue[str]]:
    pace = QueuePace()
    return WorkQueue(clock, pace=pace), WorkQueue(clock, pace=pace)


def test_a_report_is_handed_out_at_once_when_nothing_is_urgent() -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue, _ = make_queues(clock)
        queue.add_report("a")
        queue.add_report("a")
        assert len(queue) == 1 and not queue.is_idle
        assert await queue.get() == "a"
        assert clock.monotonic() == 0
        queue.done("a")
        assert queue.is_idle

    run_virtual(main())


def test_a_report_waits_until_the_last_urgent_request_of_another_queue_was_taken() -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue, other = make_queues(clock)
        other.add("x")
        other.add("y")
        queue.add_report("a")
        getting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        assert await other.get() == "x"
        await asyncio.sleep(0)
        assert not getting.done()
        assert await other.get() == "y"
        assert await getting == "a"
        assert clock.monotonic() == 0

    run_virtual(main())


def test_a_report_does_not_wait_for_ever() -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue, other = make_queues(clock)
        other.add("x")
        queue.add_report("a")
        assert await queue.get() == "a"
        assert clock.monotonic() == pytest.approx(PATIENCE)

    run_virtual(main())


def test_a_request_that_becomes_urgent_waits_no_longer_and_comes_once() -> None:
    async def main() -> None:
        queue, other = make_queues(VirtualClock())
        other.add("x")
        queue.add_report("a")
        queue.add("a")
        queue.add_report("a")
        assert await queue.get() == "a"
        queue.done("a")
        assert queue.is_idle

    run_virtual(main())


def test_a_report_about_what_is_worked_on_comes_afterwards() -> None:
    async def main() -> None:
        queue, _ = make_queues(VirtualClock())
        queue.add("a")
        key = await queue.get()
        queue.add_report("a")
        assert len(queue) == 0 and not queue.is_idle
        queue.done(key)
        assert await queue.get() == "a"
        queue.done(key)
        assert queue.is_idle

    run_virtual(main())


def make_queues_in_turns(clock: VirtualClock) -> tuple[WorkQueue[str], WorkQueue[str]]:
    pace = QueuePace(in_turns=True)
    return WorkQueue(clock, pace=pace), WorkQueue(clock, pace=pace)


def test_reports_of_one_queue_are_handed_out_before_those_of_another() -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue, other = make_queues_in_turns(clock)
        for key in ("a", "b", "c"):
            queue.add_report(key)
            other.add_report(key)
        assert await queue.get() == "a"
        waiting = asyncio.ensure_future(other.get())
        queue.add_report("d")
        assert await queue.get() == "b"
        queue.add("c")
        assert await queue.get() == "c", "an urgent request needs no turn"
        assert await waiting == "a", "the turn ends with the reports that there were when it began"
        late = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        assert not late.done()
        assert [await other.get(), await other.get()] == ["b", "c"]
        assert await late == "d"
        assert clock.monotonic() == 0

    run_virtual(main())


def test_a_turn_that_nobody_ends_does_not_hold_up_others_for_ever() -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue, other = make_queues_in_turns(clock)
        for key in ("a", "b"):
            queue.add_report(key)
        other.add_report("x")
        assert await queue.get() == "a"
        assert await other.get() == "x"
        assert clock.monotonic() == pytest.approx(PATIENCE)

    run_virtual(main())


CHILD = {"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]}


@pytest.mark.parametrize(
    ("metadata", "status", "own", "want"),
    [
        pytest.param({}, None, True, False, id="a new object is urgent"),
        pytest.param({}, {"active": 1}, True, True, id="counts of its own are not"),
        pytest.param(CHILD, None, False, True, id="a child that was made is not"),
        pytest.param(CHILD, {"phase": "Running"}, False, True, id="a child that works is not"),
        pytest.param(CHILD, {"phase": "Failed"}, False, False, id="a failure is"),
        pytest.param({**CHILD, "deletionTimestamp": "t"}, {"phase": "Running"}, False, False, id="a deletion is"),
        pytest.param({}, {"active": 1}, False, False, id="what is nobody's child is: a node, a runtime, a policy"),
        pytest.param(
            CHILD, {"conditions": [{"type": "Complete", "status": "True"}]}, False, False, id="the end of a child is"
        ),
        pytest.param(
            CHILD, {"conditions": [{"type": "Complete", "status": "False"}]}, False, True, id="no end is no end"
        ),
    ],
)
def test_what_people_wait_for_is_urgent(metadata: Any, status: Any, own: bool, want: bool) -> None:
    obj = {"metadata": metadata, **({"status": status} if status is not None else {})}
    assert is_report(obj, own=own) is want
