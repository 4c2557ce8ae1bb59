"""Sessions without sockets: channels, half-close, back-pressure, and what programs and tunnels make of them."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.unit.apiserver.http.streams.spdy_client import SpdyClient, split
from tests.unit.apiserver.http.streams.test_websocket import frame
from trainmaster.apiserver.http.streams.contract import PodStreamError, StreamOptions, read_port
from trainmaster.apiserver.http.streams.forwarding import Forwarder
from trainmaster.apiserver.http.streams.programs import ProgramServer, read_size
from trainmaster.apiserver.http.streams.sessions import HIGH, MOST_STREAMS, NumberedChannels, SpdyStreams
from trainmaster.edge.connection import FramingError

pytestmark = pytest.mark.unit


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class FakeWire:
    def __init__(self) -> None:
        self.sent = b""
        self.held = False
        self.lingers = False
        self.closing = False

    def write(self, data: bytes) -> None:
        if not self.lingers:
            self.sent += data

    def is_ready(self) -> bool:
        return not self.lingers

    async def wait_until_writable(self) -> None:
        if self.lingers:
            raise ConnectionResetError

    def hold_reading(self) -> None:
        self.held = True

    def resume_reading(self) -> None:
        self.held = False

    def linger(self) -> None:
        self.lingers = True

    def messages(self) -> list[bytes]:
        """Payloads of the short unmasked frames that were sent."""
        found, rest = [], self.sent
        while rest:
            size, head = rest[1], 2
            if size == 126:
                size, head = int.from_bytes(rest[2:4], "big"), 4
            found.append(rest[head : head + size])
            rest = rest[head + size :]
        return found


class FakeProgram:
    """Says what it is told to, repeats its input, and ends with a code when its input ends or at once."""

    def __init__(self, code: int = 0, out: bytes = b"", *, waits: bool = False) -> None:
        self.code = code
        self.out = [out] if out else []
        self.input = b""
        self.sizes: list[tuple[int, int]] = []
        self.ended = asyncio.Event()
        self.closed = False
        if not waits:
            self.ended.set()

    async def read(self, stream: str) -> bytes:
        if stream == "stdout" and self.out:
            return self.out.pop()
        await self.ended.wait()
        return b""

    async def write(self, data: bytes) -> None:
        self.input += data

    async def close_input(self) -> None:
        self.ended.set()

    async def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))

    async def wait(self) -> int:
        await self.ended.wait()
        return self.code

    async def close(self) -> None:
        self.closed = True


def wanted(**fields: Any) -> StreamOptions:
    return StreamOptions(**{"container": "c", "stdin": True, "stdout": True, "stderr": True, "tty": False, **fields})


def start(program: FakeProgram) -> Callable[[], Awaitable[FakeProgram]]:
    async def begin() -> FakeProgram:
        return program

    return begin


def open_channels(server: ProgramServer, *, v5: bool = True) -> tuple[FakeWire, NumberedChannels]:
    wire = FakeWire()
    return wire, NumberedChannels(wire, server.list_numbers(), can_half_close=v5)


@in_loop
async def test_a_program_gets_its_input_until_half_close_and_its_code_is_told() -> None:
    program = FakeProgram(3, b"out", waits=True)
    server = ProgramServer(wanted(), start(program))
    wire, session = open_channels(server)
    session.feed(frame(b"\0abc") + frame(b"\x07for nobody") + frame(b"\0def") + frame(b"\xff\0"))
    await server.serve_channels(session)
    assert program.input == b"abcdef" and program.closed
    output, status, close = wire.messages()
    assert output == b"\1out" and close[:2] == b"\x03\xe8" and wire.lingers
    assert json.loads(status[1:])["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@in_loop
async def test_a_program_that_cannot_start_is_told_as_a_failure() -> None:
    async def refuse() -> FakeProgram:
        raise PodStreamError("exec: no such file")

    server = ProgramServer(wanted(), refuse)
    wire, session = open_channels(server)
    await server.serve_channels(session)
    told = json.loads(wire.messages()[0][1:])
    assert (told["reason"], told["message"]) == ("InternalError", "Internal error occurred: exec: no such file")


@in_loop
async def test_a_client_that_closes_takes_its_program_with_it() -> None:
    program = FakeProgram(waits=True)
    server = ProgramServer(wanted(), start(program))
    _, session = open_channels(server, v5=False)
    session.feed(frame(b"\x03\xe8", 8))
    with pytest.raises(ConnectionResetError):
        await server.serve_channels(session)
    assert program.closed


@in_loop
async def test_v4_knows_no_half_close() -> None:
    _, session = open_channels(ProgramServer(wanted(), start(FakeProgram())), v5=False)
    session.feed(frame(b"\xff\0") + frame(b"\0x"))
    assert await session.channels[0].read() == b"x"


@in_loop
async def test_sizes_reach_the_terminal_and_nonsense_does_not() -> None:
    program = FakeProgram(waits=True)
    server = ProgramServer(wanted(tty=True), start(program))
    _, session = open_channels(server)
    session.feed(frame(b'\4{"Width":100,"Hei') + frame(b'\4ght":30}{"Width":-1,"Height":0}{"Width":1,"Height":2}'))
    session.feed(frame(b"\4" + b"x" * 5000) + frame(b"\xff\0"))
    await server.serve_channels(session)
    assert program.sizes == [(100, 30), (1, 2)]


@pytest.mark.parametrize("text", [b"{}", b"[]}", b'{"Width":true,"Height":1}', b'{"Width":70000,"Height":1}', b"5}"])
def test_what_is_no_size_is_ignored(text: bytes) -> None:
    assert read_size(text) is None


@in_loop
async def test_what_nobody_reads_holds_back_the_client_and_not_more_than_a_bound_is_kept() -> None:
    wire, session = open_channels(ProgramServer(wanted(), start(FakeProgram())))
    sent = 0
    while not wire.held:
        session.feed(frame(b"\0" + bytes(32_000)))
        sent += 32_000
    assert HIGH < sent < HIGH + 64_000 and session.is_held
    assert len(await session.channels[0].read()) == sent
    assert not wire.held


@in_loop
async def test_a_program_runs_over_spdy_streams() -> None:
    client, wire = SpdyClient(), FakeWire()
    session = SpdyStreams(wire)
    program = FakeProgram(0, b"out", waits=True)
    server = ProgramServer(wanted(stderr=False), start(program))
    names = ("error", "nonsense", "stdin", "stdout")
    session.feed(b"".join(client.open(streamtype=name) for name in names) + client.data(5, b"in", final=True))
    await server.serve_streams(session)
    assert program.input == b"in" and program.closed
    sent = split(wire.sent)
    assert [(kind, stream) for kind, stream, _ in sent[:5]] == [(2, 1), (2, 3), (2, 5), (2, 7), (3, 3)]
    assert (0, 7, b"out") in sent and (0, 1, b'{"metadata":{},"status":"Success"}') in sent
    assert {(-1, 1, b""), (-1, 7, b"")} <= set(sent) and sent[-1][0] == 7


@in_loop
async def test_stream_numbers_are_not_used_twice_and_not_too_many_are_open() -> None:
    client, wire = SpdyClient(), FakeWire()
    session = SpdyStreams(wire)
    for _ in range(MOST_STREAMS + 1):
        session.feed(client.open(streamtype="error"))
    assert split(wire.sent)[-1][0] == 3
    with pytest.raises(FramingError, match="twice"):
        session.feed(client.open(stream=5))


class FakeTunnel:
    """What comes back is what went in, in capitals."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False

    async def read(self) -> bytes:
        return (await self.arrived.get()).upper()

    async def write(self, data: bytes) -> None:
        self.arrived.put_nowait(data)

    def end_writing(self) -> None:
        self.arrived.put_nowait(b"")

    def close(self) -> None:
        self.closed = True


async def serve_forward(forwarder: Forwarder, session: SpdyStreams, *pieces: bytes) -> None:
    for piece in pieces:
        session.feed(piece)
    serving = asyncio.ensure_future(forwarder.serve_streams(session))
    for _ in range(20):
        await asyncio.sleep(0)
    session.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@in_loop
async def test_a_connection_is_forwarded_in_both_directions_with_half_close() -> None:
    tunnel = FakeTunnel()

    async def connect(port: int) -> FakeTunnel:
        assert port == 80
        return tunnel

    client, wire = SpdyClient(), FakeWire()
    await serve_forward(
        Forwarder(connect, "p"), SpdyStreams(wire),
        client.open(streamtype="error", port="80", requestid="0"),
        client.open(streamtype="data", port="80", requestid="0"),
        client.data(3, b"abc", final=True),
    )  # fmt: skip
    sent = split(wire.sent)
    assert (0, 3, b"ABC") in sent and (-1, 3, b"") in sent and (-1, 1, b"") in sent
    assert tunnel.closed


@in_loop
async def test_a_port_that_refuses_is_told_on_its_error_stream_only() -> None:
    async def connect(port: int) -> FakeTunnel:
        raise PodStreamError("connection refused")

    client, wire = SpdyClient(), FakeWire()
    await serve_forward(
        Forwarder(connect, "p, uid u"), SpdyStreams(wire),
        client.open(streamtype="error", port="81", requestid="0"),
        client.open(streamtype="data", port="81", requestid="0"),
        client.open(streamtype="data", port="x", requestid="1"),
        client.open(streamtype="data", port="81", requestid="unknown"),
    )  # fmt: skip
    sent = split(wire.sent)
    assert (0, 1, b"error forwarding port 81 to pod p, uid u: connection refused") in sent
    assert {(3, 5, b"\0\0\0\5"), (3, 7, b"\0\0\0\5")} <= set(sent)


@in_loop
async def test_numbered_channels_begin_with_their_port() -> None:
    tunnel = FakeTunnel()

    async def connect(port: int) -> FakeTunnel:
        return tunnel

    wire = FakeWire()
    session = NumberedChannels(wire, range(2), can_half_close=False)
    session.feed(frame(b"\0abc"))
    serving = asyncio.ensure_future(Forwarder(connect, "p", (258,)).serve_channels(session))
    for _ in range(20):
        await asyncio.sleep(0)
    tunnel.end_writing()
    await serving
    assert wire.messages()[:3] == [b"\0\2\1", b"\1\2\1", b"\0ABC"]


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "x", "٣", "8080 ", "999999"])
def test_what_is_no_port_is_refused(text: str) -> None:
    assert read_port(text) is None
