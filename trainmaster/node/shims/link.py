"""A connection to one shim: requests with answers, and events. Used by the supervisor only."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from trainmaster.shim import wire
from trainmaster.shim.wire import Message

log = logging.getLogger(__name__)

Answer = tuple[Message, list[int]]


class ShimError(Exception):
    """The shim refused the request; `kind` is the name of the reason."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind


class ShimGone(ShimError):
    """The shim does not exist any more."""


class ShimLink:
    def __init__(
        self, link: socket.socket, on_event: Callable[[Message], None], on_gone: Callable[[ShimLink], None]
    ) -> None:
        self._link = link
        self._on_event = on_event
        self._on_gone = on_gone
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(link.fileno(), self._read)

    def close(self) -> None:
        """The shim keeps running; pending requests fail."""
        if self._link.fileno() < 0:
            return
        self._loop.remove_reader(self._link.fileno())
        self._link.close()
        if not self.gone.done():
            self.gone.set_result(None)
        futures: list[asyncio.Future[Any]] = [*self._waiting.values(), *self._exits.values()]
        for answer in futures:
            if not answer.done():
                answer.set_exception(ShimGone("the shim has gone"))
                answer.exception()  # marks it as retrieved, because nobody may be waiting any more
        self._waiting.clear()

    async def request(self, op: str, fields: Message | None = None, fds: Sequence[int] = ()) -> Answer:
        """The answer and its descriptors, which the caller closes. Raises ShimError if it refuses or is gone."""
        if self._link.fileno() < 0:
            raise ShimGone("the shim has gone")
        self._last += 1
        number = self._last
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[number] = answer
        try:
            wire.send(self._link, {"id": number, "op": op, **(fields or {})}, fds)
            return await answer
        except BlockingIOError:
            raise ShimError("the shim does not read its requests") from None
        except wire.WireError as error:
            raise ShimError(str(error)) from error
        except OSError as error:
            raise ShimGone(f"the shim has gone: {error.strerror}") from error
        finally:
            self._waiting.pop(number, None)

    def get_exit(self, session: int) -> asyncio.Future[int]:
        """The exit code of a program started by `exec`; it is reported once."""
        exit = self._exits.get(session)
        if exit is None:
            exit = self._exits[session] = self._loop.create_future()
        elif exit.done():
            del self._exits[session]
        return exit

    def _read(self) -> None:
        while self._link.fileno() >= 0:
            try:
                message, fds = wire.receive(self._link)
            except BlockingIOError:
                return
            except (wire.WireError, OSError) as error:
                log.warning("shim not understood", extra={"error": str(error)})
                message, fds = None, []
            if message is None:
                self.close()
                self._on_gone(self)
                return
            self._take(message, fds)

    def _take(self, message: Message, fds: list[int]) -> None:
        answer = self._waiting.get(message.get("id") or 0)
        if "event" in message:
            if message["event"] == "exec_exited":
                self._note_exit(int(message["exec_id"]), int(message["code"]))
            else:
                self._on_event(message)
        elif answer is not None and not answer.done():
            if "error" in message:
                answer.set_exception(ShimError(str(message["error"]), str(message.get("kind", ""))))
            else:
                answer.set_result((message.get("ok") or {}, fds))
                return
        wire.close_all(fds)

    def _note_exit(self, session: int, code: int) -> None:
        """Kept for the caller: the exit may be reported before the answer to `exec` was processed."""
        exit = self._exits.pop(session, None)
        if exit is None:
            exit = self._exits[session] = self._loop.create_future()
        if not exit.done():
            exit.set_result(code)
