"""How long single steps of tasks hold the event loop, in CPU time: neither a busy machine nor the disk counts.

timer = StepTimer()
asyncio.get_running_loop().set_task_factory(timer.make_task)
...
name, milliseconds = timer.take_longest("controllers.")
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from typing import Any


class StepTimer:
    """The longest step of each task since `take_longest`."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
    ) -> asyncio.Task[Any]:
        timed = _TimedCoroutine(self, work)
        timed.task = asyncio.Task(timed, loop=loop, **more)
        return timed.task

    def note(self, task: asyncio.Task[Any] | None, seconds: float) -> None:
        name = task.get_name() if task is not None else ""
        if seconds > self._longest.get(name, 0.0):
            self._longest[name] = seconds

    def take_longest(self, prefix: str) -> tuple[str, float]:
        """(task, milliseconds) among tasks whose name begins so."""
        found = [(seconds * 1000, name) for name, seconds in self._longest.items() if name.startswith(prefix)]
        self._longest.clear()
        milliseconds, name = max(found, default=(0.0, ""))
        return name, milliseconds


class _TimedCoroutine(Coroutine[Any, Any, Any]):
    def __init__(self, timer: StepTimer, work: Any) -> None:
        self._timer = timer
        self._work = work
        self.task: asyncio.Task[Any] | None = None

    def send(self, value: Any) -> Any:
        began = time.thread_time()
        try:
            return self._work.send(value)
        finally:
            self._timer.note(self.task, time.thread_time() - began)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()  # type: ignore[no-any-return]  # of the coroutine
