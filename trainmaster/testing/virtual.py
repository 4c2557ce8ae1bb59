"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

    def test_a_day_passes() -> None:
        async def main() -> None:
            clock = VirtualClock()
            await clock.sleep(86_400)
            assert clock.monotonic() == 86_400

        run_virtual(main())

Wall time follows loop time, so `now()` and timers move together. Executor jobs are waited for in real time. Do not mix
virtual time with real processes and sockets, because the loop does not know that they are busy. If nothing can happen
any more, `Deadlock` names the waiting tasks, instead of a test that hangs.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """All tasks are waiting, and no timer, executor job or socket can wake one."""


class OutOfTime(Exception):
    """The limit on virtual time was reached, probably because of an endless loop."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls instead of waiting, and tells the loop how far time may jump."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: VirtualLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        assert self.loop is not None
        if self.loop.jobs:
            # An executor wakes the loop through its self-pipe, and no timer may fire before that.
            return super().select(None)
        if len(self.get_map()) > 1:
            # For sockets in the same process (a socketpair): give the kernel a moment before time jumps.
            ready = super().select(0.001)
            if ready:
                return ready
        if timeout is None:
            if len(self.get_map()) > 1:
                return super().select(None)
            raise Deadlock(self.loop.describe_tasks())
        self.loop.jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, limit: float = math.inf) -> None:
        self._virtual_now = 0.0
        self._limit = limit
        self.jobs = 0
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.loop = self
        # Timers are due within this tolerance, because sums of floats are not exact.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual_now

    def jump(self, seconds: float) -> None:
        self._virtual_now += seconds
        if self._virtual_now > self._limit:
            passed, self._limit = self._limit, math.inf  # clean-up may still need time
            raise OutOfTime(f"still running after {passed} virtual seconds")

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # typeshed uses a TypeVarTuple
        future = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        future.add_done_callback(self._job_done)
        return future

    async def shutdown_default_executor(self) -> None:
        self.jobs += 1  # a thread joins the executor and then wakes the loop
        try:
            await super().shutdown_default_executor()
        finally:
            self.jobs -= 1

    def _job_done(self, _: object) -> None:
        self.jobs -= 1

    def describe_tasks(self) -> str:
        names = sorted(f"{task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks(self))
        return "nothing can wake any of these tasks: " + "; ".join(names)


class VirtualClock:
    """A `Clock` on the running virtual loop. Outside of a loop its time stands still, and `advance` moves it."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._ahead = 0.0
        self._stepped = timedelta()
        self._seen = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic()) + self._stepped

    def unix(self) -> float:
        return self.now().timestamp()

    def monotonic(self) -> float:
        loop = asyncio._get_running_loop()
        if isinstance(loop, VirtualLoop):
            self._seen = loop.time()
        return self._seen + self._ahead

    def boot(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Moves all three times, for code without an event loop. Timers of a loop are not affected."""
        self._ahead += seconds

    def step_wall(self, seconds: float) -> None:
        """Sets the wall clock forward or back, as an administrator or NTP does; the other times continue."""
        self._stepped += timedelta(seconds=seconds)


def run_virtual(work: Coroutine[Any, Any, T], *, limit: float = 30 * 86_400.0) -> T:
    """Runs the coroutine to its end in virtual time. Raises OutOfTime after `limit` virtual seconds."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit)) as runner:
        try:
            return runner.run(work)
        except (Deadlock, OutOfTime):
            _cancel_all(runner.get_loop())
            raise


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


async def settle(rounds: int = 100) -> None:
    """Runs everything that can run without time passing, for a bounded number of loop iterations."""
    for _ in range(rounds):
        await asyncio.sleep(0)
