"""Reading many events of a watch at once: reading pauses after each arrival, and nothing is lost or stays away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from trainmaster.client.transport import _Connection
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SECONDS = 0.5


class FakeTransport:
    def __init__(self) -> None:
        self.paused = False

    def reads(self) -> bool:
        return not self.paused

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None:
        self.paused = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return None


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text), text)


def run(test: Callable[[_Connection, FakeTransport], Awaitable[None]], seconds: float = SECONDS) -> None:
    async def main() -> None:
        connection, transport = _Connection(), FakeTransport()
        connection.connection_made(cast(asyncio.Transport, transport))
        connection.gather(seconds)
        connection.send(b"GET", stream=True)
        connection.data_received(HEAD)
        assert transport.reads()
        await test(connection, transport)

    run_virtual(main())


def test_the_first_event_is_read_at_once_and_reading_goes_on_after_a_pause() -> None:
    async def test(connection: _Connection, transport: FakeTransport) -> None:
        connection.data_received(chunk(b"one\n"))
        assert await connection.read_piece() == b"one\n"
        assert not transport.reads()
        await asyncio.sleep(SECONDS * 0.9)
        assert not transport.reads()
        await asyncio.sleep(SECONDS * 0.2)
        assert transport.reads()
        connection.data_received(chunk(b"two\n") + chunk(b"three\n"))
        assert await connection.read_piece() == b"two\nthree\n"

    run(test)


def test_reading_goes_on_without_a_pause_while_much_arrives() -> None:
    async def test(connection: _Connection, transport: FakeTransport) -> None:
        for _ in range(3):
            connection.data_received(chunk(b"x" * 100_000))
            assert transport.reads()
            assert len(await connection.read_piece()) == 100_000
        connection.data_received(chunk(b"the rest"))
        assert not transport.reads()

    run(test)


def test_what_nobody_has_taken_keeps_reading_paused() -> None:
    async def test(connection: _Connection, transport: FakeTransport) -> None:
        connection.data_received(chunk(b"x" * 2_000_000))
        await asyncio.sleep(2 * SECONDS)
        assert not transport.reads()
        assert len(await connection.read_piece()) == 2_000_000
        assert transport.reads()

    run(test)


def test_a_closed_connection_is_left_alone() -> None:
    async def test(connection: _Connection, transport: FakeTransport) -> None:
        connection.data_received(chunk(b"one\n"))
        connection.close()
        await asyncio.sleep(2 * SECONDS)
        assert not transport.reads()

    run(test)


def test_without_a_pause_reading_never_stops() -> None:
    async def test(connection: _Connection, transport: FakeTransport) -> None:
        connection.data_received(chunk(b"one\n"))
        assert transport.reads()

    run(test, seconds=0.0)
