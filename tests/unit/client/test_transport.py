"""Streams use an idle connection before they open another one, and survive one that has died meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from trainmaster.client.transport import HttpAnswer, Interrupted, Transport, Unsent, _Connection
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Line:
    reusable, lost, started, is_spent = True, False, False, True

    def __init__(self, error: Exception | None = None, *, started: bool = False) -> None:
        self.error = error
        self.started = started
        self.closed = False
        self.sent: list[bytes] = []

    def gather(self, seconds: float) -> None: ...

    def send(self, payload: bytes, *, stream: bool) -> None:
        self.sent.append(payload)

    async def read(self) -> HttpAnswer:
        await asyncio.sleep(0)
        return HttpAnswer(200, {})

    async def read_head(self) -> HttpAnswer:
        if self.error is not None:
            raise self.error
        return HttpAnswer(200, {})

    def close(self) -> None:
        self.closed = True


class Server(Transport):
    def __init__(self, *lines: Line) -> None:
        super().__init__("http://server")
        self.lines = list(lines)
        self.opened = 0

    async def _connect(self) -> _Connection:
        self.opened += 1
        return cast(_Connection, self.lines.pop(0))


def test_a_stream_takes_the_connection_of_an_earlier_request() -> None:
    async def main() -> None:
        server = Server(Line(), Line())
        await server.exchange(b"list", repeatable=True)
        stream = await server.open_stream(b"watch")
        assert server.opened == 1
        await server.exchange(b"get", repeatable=True)
        assert server.opened == 2, "a stream has its connection for itself"
        stream.close()

    run_virtual(main())


@pytest.mark.parametrize("error", [Unsent("closed"), Interrupted("the server closed the connection")])
def test_a_connection_that_has_died_is_replaced(error: Exception) -> None:
    async def main() -> None:
        first = Line(error)
        server = Server(first, Line())
        await server.exchange(b"list", repeatable=True)
        stream = await server.open_stream(b"watch")
        assert (server.opened, stream.answer.status, first.closed) == (2, 200, True)

    run_virtual(main())


def test_a_stream_that_was_read_to_its_end_gives_its_connection_back() -> None:
    async def main() -> None:
        first, second = Line(), Line()
        server = Server(first, second)
        (await server.open_stream(b"log")).close()
        stream = await server.open_stream(b"log")
        assert (server.opened, first.closed) == (1, False)
        first.is_spent = False
        stream.close()
        stream.close()
        assert first.closed
        await server.open_stream(b"log")
        assert server.opened == 2

    run_virtual(main())


class Upgraded:
    """The server's answer to the request for a connection that carries others."""

    lost = False

    def __init__(self, code: int) -> None:
        self.code = code
        self.can_open = code == 101
        self.opened = 0
        self.closed = False

    def open(self, connection: _Connection) -> None:
        self.opened += 1

    def close(self) -> None:
        self.closed = self.lost = True


class Joining(Transport):
    def __init__(self, *codes: int) -> None:
        super().__init__("http://server", join=lambda: b"GET /")
        self.answers = [Upgraded(code) for code in codes]
        self.dialled: list[str] = []

    async def _dial(self, make: Any, greet: Any = None) -> Any:
        await asyncio.sleep(0)
        self.dialled.append(make.__name__)
        return Line() if greet is None else self.answers[self.dialled.count("CarrierConnection") - 1]


def test_one_connection_carries_all_that_are_opened_at_once() -> None:
    async def main() -> None:
        server = Joining(101, 101)
        await asyncio.gather(*(server._connect() for _ in range(5)))
        assert (server.dialled, server.answers[0].opened) == (["CarrierConnection"], 5)
        server.answers[0].lost = True
        await server._connect()
        assert (len(server.dialled), server.answers[1].opened) == (2, 1)
        server.close()
        assert server.answers[1].closed

    run_virtual(main())


@pytest.mark.parametrize(("code", "asks_again"), [(404, False), (403, False), (503, True), (429, True)])
def test_a_server_without_such_connections_has_ordinary_ones(code: int, asks_again: bool) -> None:
    async def main() -> None:
        server = Joining(code, 101)
        assert isinstance(await server._connect(), Line)
        assert server.answers[0].closed
        await server._connect()
        assert server.answers[1].opened == asks_again

    run_virtual(main())


def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    async def main() -> None:
        server = Server(Line(Interrupted("cut"), started=True), Line())
        await server.exchange(b"list", repeatable=True)
        with pytest.raises(Interrupted):
            await server.open_stream(b"watch")

    run_virtual(main())
