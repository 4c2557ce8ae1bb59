"""Sources of live data, each shared by all streams of one caller that follow the same thing.

A source is a task with a state. Followers read the state and wait for changes, so there is no queue per follower: who
is slow sees the newest state later. A source acts as the caller whose stream started it, and its key contains that
identity, so nobody sees through it what they may not read themselves.

    async with sources.using(JobTable, key, build) as table:
        ...

The last one to leave ends it, at once or after `linger_seconds`. An error is kept in `failure`; the source is then
replaced for the next user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from trainmaster.api.status import StatusError
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import Caller
from trainmaster.rest.problems import Problem

log = logging.getLogger(__name__)


class Changes:
    """Wakes everybody who waits. Take `next` before reading the state, so that no change is missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()
        """Is set by the next change."""

    def notify(self) -> None:
        self.next.set()
        self.next = asyncio.Event()


class Source:
    linger_seconds: ClassVar[float] = 0.0
    """How long it is kept for somebody who comes again."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.failure: Exception | None = None
        self.has_ended = False

    async def run(self) -> None:
        """Until everything is told; StatusError, OSError or Problem if it cannot go on."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises what ended it, if it failed."""
        if self.failure is not None:
            raise self.failure


S = TypeVar("S", bound=Source)


@dataclass(slots=True)
class _Shared:
    source: Source
    task: asyncio.Task[None] | None = None
    users: int = 0
    turns: int = 0
    """How often it was left by its last user."""


class Sources:
    """`run` owns the tasks; without it there are no streams."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Hashable, _Shared] = {}
        self._scope: Scope | None = None

    @property
    def count(self) -> int:
        return len(self._open)

    async def run(self) -> None:
        """For ever: for the server's own scope."""
        async with Scope("rest.sources") as scope:
            self._scope = scope
            try:
                await asyncio.Event().wait()
            finally:
                self._scope = None

    @asynccontextmanager
    async def using(self, kind: type[S], key: Hashable, build: Callable[[], S]) -> AsyncIterator[S]:
        whole = (kind, key)
        shared = self._open.get(whole)
        if shared is None:
            shared = self._open[whole] = self._start(whole, build())
        source = shared.source
        assert isinstance(source, kind)
        shared.users += 1
        try:
            yield source
        finally:
            shared.users -= 1
            if not shared.users:
                await self._leave(whole, shared)

    def _start(self, key: Hashable, source: Source) -> _Shared:
        if self._scope is None:
            raise Problem(503, "unavailable", "the server is starting or stopping", retry_after=1)
        shared = _Shared(source)
        shared.task = self._scope.spawn(self._run(key, shared), name=f"rest.sources.{type(source).__name__}")
        return shared

    async def _run(self, key: Hashable, shared: _Shared) -> None:
        source = shared.source
        try:
            await source.run()
        except (StatusError, OSError, Problem) as error:
            source.failure = error
        except Exception as error:  # the streams end with it, and the others go on
            name = type(source).__name__
            log.exception("a source of live data failed", extra={"action": "rest.source", "source": name})
            source.failure = error
        finally:
            source.has_ended = True
            self._forget(key, shared)
            source.changes.notify()

    def _forget(self, key: Hashable, shared: _Shared) -> None:
        if self._open.get(key) is shared:
            del self._open[key]

    async def _leave(self, key: Hashable, shared: _Shared) -> None:
        shared.turns += 1
        linger = shared.source.linger_seconds
        if linger and not shared.source.has_ended and self._scope is not None:
            self._scope.spawn(self._expire(key, shared, shared.turns, linger), name="rest.sources.linger")
            return
        await self._stop(key, shared)

    async def _expire(self, key: Hashable, shared: _Shared, turn: int, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if not shared.users and shared.turns == turn:
            await self._stop(key, shared)

    async def _stop(self, key: Hashable, shared: _Shared) -> None:
        self._forget(key, shared)
        task = shared.task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,))


def build_share_key(caller: Caller) -> Hashable:
    """What the callers have in common who may share a source: the whole identity, on which all rights depend."""
    identity = caller.identity
    return identity.user, identity.uid, tuple(sorted(identity.groups)), tuple(sorted(identity.extra.items()))
