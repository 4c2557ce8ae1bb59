"""An ASGI application behind a connection: bodies, answers, leaving. No sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.apiserver.http.wire import FakeTransport, get, post
from trainmaster.app.rest.serving import encode_refusal
from trainmaster.edge.asgi import AsgiServer, Peer
from trainmaster.edge.bodies import MARK_BYTES
from trainmaster.edge.connection import Connection
from trainmaster.edge.gatekeeper import Visitor
from trainmaster.edge.limits import EdgeLimits
from trainmaster.kit.clock import SystemClock

pytestmark = pytest.mark.unit

Handler = Callable[[Any, Any, Any], Awaitable[None]]


class App:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.stopped = False
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await self.handler(scope, receive, send)

    def stop(self) -> None:
        self.stopped = True


class Stage:
    def __init__(self, handler: Handler, limits: EdgeLimits | None = None, failures: int = 0) -> None:
        self.app = App(handler)
        self.failures = failures
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.server = AsgiServer(
            self.load, listener, encode_refusal, limits or EdgeLimits(drain_seconds=0.01), SystemClock()
        )

    async def load(self) -> App:
        if self.failures:
            self.failures -= 1
            raise OSError(24, "Too many open files")
        return self.app

    def connect(self) -> tuple[Peer, FakeTransport]:
        visitor, transport = Visitor("203.0.113.9", 4711), FakeTransport()
        assert self.server.gatekeeper.admit(visitor)
        connection = Connection(self.server, visitor)
        connection.connection_made(transport)
        return connection, transport


def run(check: Callable[[Stage], Awaitable[None]], handler: Handler, **more: Any) -> None:
    async def main() -> None:
        stage = Stage(handler, **more)
        async with stage.server:
            await check(stage)

    asyncio.run(main())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def answer(send: Any, body: bytes = b"", status: int = 200, headers: Any = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message["body"]
        if not message["more_body"]:
            break
    await answer(send, body)


def test_a_request_and_its_answer() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(post("/a%20b?c=d", b"hello", "X-Twice: 1", "X-Twice: 2"))
        await settle()
        assert transport.sent == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
        scope = stage.app.scopes[0]
        assert scope["path"] == "/a b" and scope["raw_path"] == b"/a%20b" and scope["query_string"] == b"c=d"
        assert scope["client"] == ("203.0.113.9", 4711)
        assert [value for name, value in scope["headers"] if name == b"x-twice"] == [b"1", b"2"]
        connection.data_received(post("/", b"again"))
        await settle()
        assert transport.sent.endswith(b"again") and not transport.closed

    run(check, echo)


def test_a_body_is_read_as_fast_as_the_application_wants_it() -> None:
    gate = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        await echo(scope, receive, send)

    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        payload = post("/", b"x" * 1_000_000)
        sent = 0
        while sent < len(payload) and transport.reading:
            connection.data_received(payload[sent : sent + 10_000])
            sent += 10_000
            await settle()
        assert MARK_BYTES < sent < 3 * MARK_BYTES
        gate.set()
        while sent < len(payload):
            await settle()
            assert transport.reading
            connection.data_received(payload[sent : sent + 200_000])
            sent += 200_000
        await settle()
        assert transport.sent.endswith(b"x" * 1_000_000)

    run(check, slow)


def test_what_is_pipelined_behind_a_body_waits_and_is_served() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(post("/1", b"one") + get("/2") + post("/3", b"three")[:-2])
        await settle()
        connection.data_received(b"ee")
        await settle()
        assert [scope["path"] for scope in stage.app.scopes] == ["/1", "/2", "/3"]
        assert transport.sent.count(b"HTTP/1.1 200") == 3 and transport.sent.endswith(b"three")

    run(check, echo)


def test_an_answer_before_the_body_has_come_closes_politely() -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"no", 401)

    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(post("/", b"x" * 5000)[:-10])
        await settle()
        assert transport.sent.startswith(b"HTTP/1.1 401") and b"connection: close" in transport.sent
        assert connection.closing and not transport.closed and transport.reading

    run(check, refuse)


def test_a_body_that_does_not_come_is_answered_408() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(post("/", b"hello")[:-1])
        await settle()
        stage.server.tick += 61
        assert connection.is_overdue()
        stage.server._cut(connection)
        await settle()
        assert transport.sent.startswith(b"HTTP/1.1 408") and b"limits.body_seconds" in transport.sent

    run(check, echo)


def test_expect_100_continue_is_answered_when_the_body_is_wanted() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(post("/", b"hello", "Expect: 100-continue")[:-5])
        await settle()
        assert transport.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.data_received(b"hello")
        await settle()
        assert transport.sent.endswith(b"hello")

    run(check, echo)


async def stream(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for piece in (b"one", b"two"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def test_a_stream_is_chunked_and_learns_that_its_reader_left() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(get("/"))
        await settle()
        assert b"transfer-encoding: chunked" in transport.sent
        assert transport.sent.endswith(b"3\r\none\r\n3\r\ntwo\r\n")
        connection.connection_lost(None)
        await settle()
        assert stage.server._exchanges == {} and len(stage.server.gatekeeper) == 0

    run(check, stream)


def test_a_stream_waits_for_its_reader() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(get("/"))
        connection.pause_writing()
        await settle()
        assert transport.sent.count(b"one") == 0
        stage.server.tick += 31
        assert connection.is_overdue()
        connection.resume_writing()
        await settle()
        assert transport.sent.endswith(b"two\r\n")

    run(check, stream)


def test_head_has_no_body() -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(get("/").replace(b"GET", b"HEAD"))
        await settle()
        assert transport.sent == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"

    async def four(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"four")

    run(check, four)


def test_half_an_answer_is_broken_off() -> None:
    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(get("/"))
        await settle()
        assert transport.aborted

    run(check, half)


def test_what_cannot_be_loaded_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.connect(), stage.connect()
        first[0].data_received(get("/"))
        await settle()
        assert first[1].sent.startswith(b"HTTP/1.1 503") and b"retry-after: 5" in first[1].sent
        second[0].data_received(get("/"))
        await settle()
        assert second[1].sent.startswith(b"HTTP/1.1 200")

    run(check, echo, failures=1)
    assert "Too many open files" in caplog.text


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"rubbish\r\n\r\n", b"400"),
        (get("/", *[f"X-{number}: 1" for number in range(300)]), b"431"),
    ],
)
def test_what_is_no_request_is_a_problem_document(payload: bytes, code: bytes) -> None:
    async def check(stage: Stage) -> None:
        connection, transport = stage.connect()
        connection.data_received(payload)
        await settle()
        assert transport.sent.startswith(b"HTTP/1.1 " + code) and b"application/problem+json" in transport.sent
        assert stage.app.scopes == []

    run(check, echo)
