"""The work queue: no repeats, one worker per object, back-off and wake-ups in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trainmaster.api.status import insufficient_storage, unavailable
from trainmaster.engine.queue import WorkQueue
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def run(test: Callable[[WorkQueue[str], VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await test(WorkQueue(clock, retry=BackoffPolicy(first=1.0, cap=4.0)), clock)

    run_virtual(main())


def test_a_key_that_waits_is_not_added_twice() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.add("a")
        queue.add("b")
        queue.add("a")
        assert len(queue) == 2
        assert [await queue.get(), await queue.get()] == ["a", "b"]

    run(test)


def test_a_key_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        assert len(queue) == 0
        queue.done(key)
        assert await queue.get() == "a"
        queue.done("a")
        assert queue.is_idle

    run(test)


def test_a_wake_up_comes_when_it_is_due_and_the_earliest_counts() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.add_after("a", 30)
        queue.add_after("a", 10)
        queue.add_after("a", 20)
        assert await queue.get() == "a"
        assert clock.monotonic() == pytest.approx(10)
        queue.done("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await queue.get()

    run(test)


def test_a_waiting_worker_is_woken_by_an_earlier_wake_up() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.add_after("late", 100)
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(queue.get())
            await asyncio.sleep(1)
            queue.add_after("soon", 1)
        assert worker.result() == "soon"
        assert clock.monotonic() == pytest.approx(2)

    run(test)


def test_back_off_doubles_up_to_its_cap_and_success_starts_it_over() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        delays = []
        for _ in range(5):
            delays.append(queue.retry("a"))
            assert await queue.get() == "a"
            queue.done("a")
        assert delays == [1.0, 2.0, 4.0, 4.0, 4.0]
        queue.forget("a")
        assert queue.retry("a") == 1.0

    run(test)


def test_on_a_full_disk_the_pause_is_at_most_what_the_server_asked_for() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        error = insufficient_storage("no space left", retry_after=3)
        assert [queue.retry("a", error) for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
        assert queue.retry("a", unavailable("too busy")) == 4.0, "a busy server is not asked more often"

    run(test)


def test_several_workers_share_the_keys() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(queue.get()) for _ in range(3)]
            await asyncio.sleep(0)
            for key in "abc":
                queue.add(key)
        assert sorted(worker.result() for worker in workers) == ["a", "b", "c"]

    run(test)


def test_a_key_that_was_given_back_for_a_rest_is_handed_out_once_after_it() -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        queue.add("large")
        assert await queue.get() == "large"
        queue.done("large", 0.5)
        queue.add("large")
        queue.add("large")
        queue.add("small")
        assert await queue.get() == "small", "a rest holds up nobody else"
        queue.done("small")
        began = clock.monotonic()
        assert await queue.get() == "large"
        assert clock.monotonic() - began >= 0.5
        queue.done("large")
        assert queue.is_idle

    run_virtual(main())


def test_a_shorter_rest_ends_before_a_longer_one_that_began_earlier() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(VirtualClock())
        for key, rest in (("long", 1.0), ("short", 0.1)):
            queue.add(key)
            await queue.get()
            queue.done(key, rest)
            queue.add(key)
        assert [await queue.get(), await queue.get()] == ["short", "long"]

    run_virtual(main())


def test_a_wake_up_comes_within_a_minute_of_waking_from_a_sleep_of_the_machine() -> None:
    class SleepyClock(VirtualClock):
        """Boot time goes on while the machine sleeps; the loop's timers stand."""

        slept = 0.0

        def boot(self) -> float:
            return self.monotonic() + self.slept

    async def main() -> None:
        clock = SleepyClock()
        queue = WorkQueue[str](clock)
        queue.add_after("a", 8 * 3600.0)
        async with asyncio.timeout(100):
            waiting = asyncio.ensure_future(queue.get())
            await asyncio.sleep(10)
            clock.slept = 9 * 3600.0
            assert await waiting == "a"

    run_virtual(main())


def test_a_queue_is_settled_when_nothing_is_to_be_retried_or_continued() -> None:
    async def test(queue: WorkQueue[str], clock: VirtualClock) -> None:
        def read() -> tuple[bool, bool]:
            return queue.is_idle, queue.is_settled

        queue.add_after("later", 100)
        assert read() == (True, True)
        queue.add_after("at once", 0.001)
        assert read() == (True, False)
        assert await queue.get() == "at once"
        queue.retry("at once")
        queue.done("at once")
        assert read() == (True, False)
        assert await queue.get() == "at once"
        queue.forget("at once")
        queue.done("at once")
        assert read() == (True, True)

    run(test)
