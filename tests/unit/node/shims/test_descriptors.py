"""Pipes and terminals in the event loop: ends, slow readers, and others who hold a stream open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import pytest

from trainmaster.node.shims.descriptors import FdReader, FdWriter

pytestmark = pytest.mark.unit


def run(check: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(check, 30))


def test_a_stream_that_somebody_else_holds_open_ends_some_time_after_the_program() -> None:
    async def check() -> None:
        theirs, held = os.pipe2(os.O_CLOEXEC)
        reader = FdReader(theirs)
        os.write(held, b"last words")
        reader.end_after_idle(0.01)
        assert [await reader.read(), await reader.read()] == [b"last words", b""]
        reader.close()
        os.close(held)

    run(check())


def test_hurry_reaches_who_waits_already() -> None:
    async def check() -> None:
        theirs, held = os.pipe2(os.O_CLOEXEC)
        reader = FdReader(theirs)
        asyncio.get_running_loop().call_soon(reader.end_after_idle, 0.01)
        assert await reader.read() == b""
        reader.close()
        os.close(held)

    run(check())


def test_the_end_of_a_terminal_is_no_error() -> None:
    async def check() -> None:
        ours, theirs = os.openpty()
        reader = FdReader(ours)
        os.write(theirs, b"x")
        assert await reader.read() == b"x"
        os.close(theirs)
        assert await reader.read() == b""
        reader.close()

    run(check())


def test_writing_waits_for_the_reader_and_nothing_is_lost() -> None:
    async def check() -> None:
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        reader, writer = FdReader(theirs), FdWriter(ours)
        data = os.urandom(1_000_000)

        async def collect() -> bytes:
            found = b""
            while piece := await reader.read():
                found += piece
            return found

        async def send() -> None:
            await writer.write(data)
            writer.close()

        found, _ = await asyncio.gather(collect(), send())
        assert found == data
        reader.close()

    run(check())


def test_what_nobody_reads_any_more_is_dropped() -> None:
    async def check() -> None:
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        writer = FdWriter(ours)
        os.close(theirs)
        await writer.write(b"x" * 1_000_000)
        await writer.write(b"more")
        writer.close()

    run(check())
