"""What is counted of a queue: every request once, however often it is added, and the times that it took."""

from __future__ import annotations

import pytest

from trainmaster.engine.queue import WorkQueue
from trainmaster.engine.queue_meter import QueueMeter
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_requests_are_counted_with_their_times() -> None:
    async def main() -> None:
        clock, waits = VirtualClock(), list[float]()
        meter = QueueMeter(clock, waits.append)
        queue = WorkQueue[str](clock, retry=BackoffPolicy(first=4.0, cap=4.0), meter=meter)
        for _ in range(3):
            queue.add("a")
        queue.add_report("b")
        queue.add("b")
        assert (meter.added, meter.depth, meter.active) == (2, 2, 0), "what waits already is not added again"
        await clock.sleep(2)
        assert await queue.get() == "a"
        await clock.sleep(1)
        assert await queue.get() == "b"
        assert waits == [2.0, 3.0] and (meter.depth, meter.active) == (0, 2)
        queue.add("a")
        assert meter.added == 2, "it is added when the worker is done"
        await clock.sleep(1)
        assert meter.list_work_seconds() == [2.0, 1.0]
        queue.retry("b")
        for key in "ab":
            queue.done(key)
        assert (meter.added, meter.retried, meter.depth, meter.active) == (3, 1, 1, 0)
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert meter.added == 4 and waits[2:] == [0.0, 0.0]

    run_virtual(main())
