"""Connections inside a connection: order, backpressure of each one, ends, and frames that break the protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from trainmaster.edge.multiplexing import CLOSE, DATA, GRANT, MOST, OPEN, WINDOW, CarriedTransport, Multiplexer
from trainmaster.edge.refusals import FramingError
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Wire:
    """Carries the bytes to the other end in later turns of the loop, in pieces that know no frames."""

    def __init__(self) -> None:
        self.ready = True
        self.other: Multiplexer | None = None
        self._sent = bytearray()

    def write(self, data: bytes) -> None:
        if not self._sent:
            asyncio.get_running_loop().call_soon(self._pass_on)
        self._sent += data

    def _pass_on(self) -> None:
        sent, self._sent = bytes(self._sent), bytearray()
        assert self.other is not None
        for start in range(0, len(sent), 50_001):
            self.other.feed(sent[start : start + 50_001])

    def is_ready(self) -> bool:
        return self.ready


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost = False
        self.error: Exception | None = None
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, CarriedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert not self.lost
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.lost
        self.lost, self.error = True, exc

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False


class Pair:
    def __init__(self) -> None:
        self.accepted: list[End] = []
        self.notes = 0
        self.here, self.there = Wire(), Wire()
        self.client = Multiplexer(self.here)
        self.server = Multiplexer(self.there, accept=self._accept, extra=lambda: {"carried": True}, note=self._note)
        self.here.other, self.there.other = self.server, self.client

    def _accept(self, transport: CarriedTransport) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    def _note(self) -> None:
        self.notes += 1

    async def open(self) -> tuple[End, End]:
        mine = End()
        self.client.open(mine)
        await settle()
        return mine, self.accepted[-1]


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def check(test: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Pair())

    run_virtual(main())


def test_bytes_pass_in_order_both_ways_and_each_connection_has_its_own() -> None:
    async def test(pair: Pair) -> None:
        (first, at_first), (second, at_second) = await pair.open(), await pair.open()
        long = bytes(range(256)) * 4000
        first.transport.write(b"question")
        at_first.transport.write(long)
        second.transport.write(b"other")
        await settle()
        assert (at_first.received, at_second.received, second.received) == (b"question", b"other", b"")
        assert first.received == long
        assert at_first.transport.get_extra_info("carried")

    check(test)


def test_a_connection_that_is_not_read_stops_its_writer_and_no_other() -> None:
    async def test(pair: Pair) -> None:
        (slow, to_slow), (quick, to_quick) = await pair.open(), await pair.open()
        slow.transport.pause_reading()
        sent = b"".join(b"%08d" % number for number in range(WINDOW // 2))
        to_slow.transport.write(sent)
        await settle()
        assert to_slow.is_paused and slow.received == b""
        assert to_slow.transport.get_write_buffer_size() == len(sent) - WINDOW
        to_quick.transport.write(b"news")
        await settle()
        assert quick.received == b"news"
        slow.transport.resume_reading()
        await settle()
        assert slow.received == sent and not to_slow.is_paused

    check(test)


def test_a_carrier_that_does_not_keep_up_gets_nothing_until_it_does() -> None:
    async def test(pair: Pair) -> None:
        mine, peer = await pair.open()
        pair.there.ready = False
        peer.transport.write(b"held")
        await settle()
        assert mine.received == b"" and pair.notes == 1
        pair.there.ready = True
        pair.server.flush()
        await settle()
        assert mine.received == b"held"

    check(test)


def test_what_was_written_before_a_close_arrives_before_it() -> None:
    async def test(pair: Pair) -> None:
        mine, peer = await pair.open()
        mine.transport.pause_reading()
        sent = b"x" * (3 * WINDOW)
        peer.transport.write(sent)
        peer.transport.close()
        peer.transport.write(b"too late")
        await settle()
        assert [mine.lost, peer.lost] == [False, False]
        mine.transport.resume_reading()
        await settle()
        assert mine.received == sent
        assert [mine.lost, peer.lost] == [True, True]
        assert (len(pair.client), len(pair.server)) == (0, 0)

    check(test)


def test_an_abort_drops_what_was_not_sent_and_ends_both_sides() -> None:
    async def test(pair: Pair) -> None:
        mine, peer = await pair.open()
        mine.transport.pause_reading()
        peer.transport.write(b"x" * (2 * WINDOW))
        peer.transport.abort()
        peer.transport.abort()
        await settle()
        mine.transport.resume_reading()
        await settle()
        assert len(mine.received) == WINDOW and mine.lost and peer.lost and pair.notes == 1

    check(test)


def test_when_the_carrier_is_lost_all_connections_are() -> None:
    async def test(pair: Pair) -> None:
        (first, _), (second, _) = await pair.open(), await pair.open()
        error = ConnectionResetError("gone")
        pair.client.lose(error)
        first.transport.write(b"to nobody")
        await settle()
        assert first.lost and second.lost and first.error is error
        assert len(pair.client) == 0

    check(test)


def test_a_connection_beyond_the_limit_is_closed_and_the_others_live() -> None:
    async def test(pair: Pair) -> None:
        mine, peer = await pair.open()
        for _ in range(MOST - 1):
            pair.client.open(End())
        await settle()
        beyond = End()
        pair.client.open(beyond)
        await settle()
        assert beyond.lost and len(pair.accepted) == MOST
        peer.transport.write(b"here")
        await settle()
        assert mine.received == b"here"

    check(test)


def frame(kind: int, number: int, count: int = 0, data: bytes = b"") -> bytes:
    return struct.pack(">BII", kind, number, count) + data


@pytest.mark.parametrize(
    "frames",
    [
        frame(9, 1),
        frame(0, 1),
        frame(DATA, 1, 1 << 31),
        frame(OPEN, 1),
        frame(OPEN, 0),
        frame(GRANT, 1, 1),
        frame(GRANT, 1, (1 << 32) - 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_frames_that_break_the_protocol_end_the_carrier(frames: bytes) -> None:
    async def test(pair: Pair) -> None:
        await pair.open()
        with pytest.raises(FramingError):
            pair.server.feed(frames)

    check(test)


def test_nobody_sends_more_than_was_granted() -> None:
    async def test(pair: Pair) -> None:
        _, peer = await pair.open()
        peer.transport.pause_reading()
        piece = frame(DATA, 1, 65_536, b"x" * 65_536)
        for _ in range(WINDOW // 65_536):
            pair.server.feed(piece)
        with pytest.raises(FramingError):
            pair.server.feed(frame(DATA, 1, 1, b"x"))

    check(test)


def test_the_server_opens_no_connections_at_a_client() -> None:
    async def test(pair: Pair) -> None:
        with pytest.raises(FramingError):
            pair.client.feed(frame(OPEN, 7))

    check(test)


def test_frames_for_connections_that_have_ended_are_ignored() -> None:
    async def test(pair: Pair) -> None:
        for late in (frame(DATA, 5, 4, b"late"), frame(GRANT, 5, 10), frame(CLOSE, 5)):
            pair.server.feed(late)
        mine, peer = await pair.open()
        mine.transport.write(b"still alive")
        await settle()
        assert peer.received == b"still alive"

    check(test)
