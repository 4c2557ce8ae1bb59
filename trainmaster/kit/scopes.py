"""Structured concurrency: every task belongs to a scope. The only module that creates tasks.

A component is an async context manager that keeps a `Scope` open while it lives: entering starts its tasks, leaving
cancels those that are still running and waits for them. A task that fails ends the scope and with it the component, so
no failure goes unnoticed in a task that nobody awaits.

    async with Scope("store") as scope:
        scope.spawn_forever(self._maintain(), name="store.maintain")
        yield self

A single failure is raised unchanged; two or more are raised as an exception group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class EndedEarly(Exception):
    """A task that should run as long as its scope has returned."""


class Scope:
    def __init__(self, name: str) -> None:
        self.name = name
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            only = _only_failure(group)
            if only is None:
                raise
            if only is error:
                return  # Python raises the body's own exception again, with its traceback.
            raise only from None

    def spawn(self, work: Coroutine[object, None, T], *, name: str) -> asyncio.Task[T]:
        """Starts a task that runs until it is done or the scope ends. An error ends the scope."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn_forever(self, work: Coroutine[object, None, None], *, name: str) -> asyncio.Task[None]:
        """Like `spawn`, but returning is an error too, for work that must never stop."""
        return self._spawn_around(_never_return(work, name), work, name)

    def spawn_guarded(self, work: Coroutine[object, None, None], *, name: str) -> asyncio.Task[None]:
        """Like `spawn`, but an error is only logged. For work that others do not depend on, such as one connection."""
        return self._spawn_around(_log_failure(work, name), work, name)

    def _spawn_around(
        self, wrapped: Coroutine[object, None, None], work: Coroutine[object, None, None], name: str
    ) -> asyncio.Task[None]:
        task = self.spawn(wrapped, name=name)
        # A task that is cancelled before its first step never awaits `work`; closing it avoids a warning.
        task.add_done_callback(lambda _: work.close())
        return task

    def cancel(self) -> None:
        """Cancels all tasks; leaving the scope waits for them."""
        for task in tuple(self._tasks):
            task.cancel()


async def _never_return(work: Coroutine[object, None, None], name: str) -> None:
    await work
    raise EndedEarly(f"{name} returned")


async def _log_failure(work: Coroutine[object, None, None], name: str) -> None:
    try:
        await work
    except Exception:
        log.exception("task failed", extra={"task": name})


def _only_failure(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    while len(group.exceptions) == 1:
        inner = group.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        group = inner
    return None


async def finish(work: Coroutine[object, None, T], *, limit: float, name: str = "clean-up") -> T:
    """Runs a clean-up to its end even if the caller is cancelled, for at most `limit` seconds.

    A cancellation that arrives meanwhile is raised again afterwards. Raises TimeoutError at the limit.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    deadline = asyncio.get_running_loop().time() + limit
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            break
        try:
            await asyncio.wait((task,), timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
        if cancelled is None:
            raise TimeoutError(f"{name} took longer than {limit} s")
    if cancelled is not None:
        if task.done() and not task.cancelled() and task.exception() is not None:
            log.error("clean-up failed while cancelled", exc_info=task.exception(), extra={"task": name})
        raise cancelled
    return task.result()
