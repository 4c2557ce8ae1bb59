"""The event loop and the clock of a simulated world: no sockets, no threads, and time that jumps to the next timer.

Faster than `testing.virtual` (no system call per iteration), because a simulation runs thousands of iterations. Tasks
belong to a group, which their children inherit; a process is killed by killing its group. Nothing depends on object
identity, so that runs are deterministic.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH = START.timestamp()


class Deadlock(Exception):
    """All tasks wait and no timer is set: a bug of the simulation."""


class Group:
    """The tasks of one simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self._tasks: list[asyncio.Task[Any]] = []

    def add(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) > 64:
            self._tasks = [old for old in self._tasks if not old.done()]
        self._tasks.append(task)

    def kill(self) -> None:
        """Cancels every task."""
        self.dead = True
        for task in self._tasks:
            task.cancel()


_group: ContextVar[Group | None] = ContextVar("simulation_group", default=None)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    group = _group.get()
    if group is not None:
        group.add(task)
        if group.dead:
            task.cancel()
    return task


class _Jumper:
    """A selector that advances the virtual time instead of waiting."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits, and no timer can wake one")
        if timeout > 0:
            self._loop.jump()
        return []


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _Jumper(self)
        self._clock_resolution = 1e-9
        self._scheduled: list[asyncio.TimerHandle]
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]  # typeshed uses a TypeVarTuple
        """On a grid of microseconds, rounded up: a timer that fires too early by a rounding error is set again."""
        rounded = math.ceil(when * 1e6) / 1e6
        if rounded < when:
            rounded += 1e-6
        return super().call_at(rounded, callback, *args, context=context)

    def jump(self) -> None:
        """Advances the time to the next timer."""
        self.now = max(self.now, self._scheduled[0].when())

    def spawn(self, work: Coroutine[Any, Any, Any], *, group: Group | None, name: str) -> asyncio.Task[Any]:
        """Creates a task in the group; tasks that it starts join the group too."""
        token = _group.set(group)
        try:
            return self.create_task(work, name=name)
        finally:
            _group.reset(token)

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing to do: there are only timers and tasks."""

    def _write_to_self(self) -> None:
        """Nothing to do: there are no other threads."""


class SimClock:
    """A `Clock` on a simulated loop. Steps of the wall clock are seen by `now` alone."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._stepped = timedelta()

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.now) + self._stepped

    def unix(self) -> float:
        return _EPOCH + self._loop.now + self._stepped.total_seconds()

    def monotonic(self) -> float:
        return self._loop.now

    def boot(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def step_wall(self, seconds: float) -> None:
        self._stepped += timedelta(seconds=seconds)
