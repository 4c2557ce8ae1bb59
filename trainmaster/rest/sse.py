"""Server-sent events: the wire format, and the response that sends them.

    id: ...            where to continue: the client sends it as Last-Event-ID when it reconnects
    event: log
    data: {...}

An event is delivered completely or not at all, so its id stands for exactly what the client has seen; lines that arrive
together share one event. Between source and socket is one bounded queue: a slow reader blocks only its own source, and
one that reads nothing for a minute is disconnected. All tasks belong to the response and end with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Request

from trainmaster.api.status import StatusError
from trainmaster.kit.scopes import Scope
from trainmaster.rest.problems import Problem, from_status
from trainmaster.rest.services.streams import Streams, encode

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
CHECK_SECONDS = 5.0
"""How soon a revoked token ends its streams."""
STALLED_SECONDS = 60.0
RETRY_MS = 1000
_QUEUE = 4
"""The maximum number of items queued for a slow reader; then the source has to wait."""

T = TypeVar("T")


class _Beat:
    """Sent after a while without events."""


_BEAT = _Beat()


class EventStream(Response, Generic[T]):
    """`source` is closed at the end, in the task that iterates it. `check` raises if the caller may no longer
    listen."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        source: AsyncGenerator[T, None],
        encode_items: Callable[[Sequence[T]], bytes],
        streams: Streams,
        who: str,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"}, media_type=MEDIA_TYPE)
        self._source = source
        self._encode = encode_items
        self._streams = streams
        self._who = who
        self._check = check
        self._ended = False
        self._sending = False
        self._moved = 0.0
        """When a piece was last started or accepted."""
        self._queue: asyncio.Queue[T | Problem | _Beat | None] = asyncio.Queue(_QUEUE)

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        with self._streams.opened(self._who):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async with Scope("rest.stream") as tasks:
                tasks.spawn(self._pump(), name="rest.stream.pump")
                ends = {
                    tasks.spawn(self._send_all(send), name="rest.stream.send"),
                    tasks.spawn(self._keep(), name="rest.stream.keep"),
                    tasks.spawn(_wait_for_leaving(receive), name="rest.stream.leave"),
                    tasks.spawn(self._streams.closing.wait(), name="rest.stream.stop"),
                }
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._streams.closing.is_set() and not self._ended and not self._sending:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self) -> None:
        end: Problem | None = None
        try:
            async with aclosing(self._source):
                async for item in self._source:
                    await self._queue.put(item)
        except StatusError as error:
            end = from_status(error)
        except OSError:
            end = Problem(503, "unavailable", "the server behind does not answer")
        except Problem as problem:
            end = problem
        await self._queue.put(end)

    # One task checks all timers periodically, so that single events need none.

    async def _keep(self) -> None:
        """Checks permission, silence and stalled readers. Returns when the stream has to end."""
        # Streams that were opened together are not checked together.
        pause = CHECK_SECONDS * self._streams.choose_share()
        while True:
            await asyncio.sleep(pause)
            pause = CHECK_SECONDS
            quiet = asyncio.get_running_loop().time() - self._moved
            if self._sending:
                if quiet >= STALLED_SECONDS:
                    log.info("a reader takes nothing", extra={"action": "rest.stalled"})
                    return
            elif quiet >= HEARTBEAT_SECONDS - CHECK_SECONDS and self._queue.empty():
                self._queue.put_nowait(_BEAT)
            try:
                await self._check()
            except StatusError as error:
                # A temporary failure of the server does not affect the caller's permission.
                if error.code in (401, 403):
                    self._cut(from_status(error))
            except OSError:
                continue
            except Problem as problem:
                self._cut(problem)

    def _cut(self, problem: Problem) -> None:
        """Discards what is queued, which the caller may not see. No await, so that nothing can be queued before the
        problem."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(problem)

    async def _send_all(self, send: Send) -> None:
        await self._send(send, b"retry: %d\n\n" % RETRY_MS)
        while True:
            body, last = self._take(await self._queue.get())
            if body:
                await self._send(send, body)
            if last:
                self._ended = True
                await self._send(send, b"", more=False)
                return

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self._sending, self._moved = True, loop.time()
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self._sending, self._moved = False, loop.time()

    def _take(self, first: T | Problem | _Beat | None) -> tuple[bytes, bool]:
        """The queued items as events, and whether it is the end."""
        items: list[T] = []
        item = first
        while item is not None and not isinstance(item, Problem):
            if not isinstance(item, _Beat):
                items.append(item)
            if self._queue.empty():
                return self._encode(items) if items else b":\n\n", False
            item = self._queue.get_nowait()
        body = self._encode(items) if items else b""
        return body + (b"" if item is None else encode("problem", item.to_data())), True


async def _wait_for_leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
