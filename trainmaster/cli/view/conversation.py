"""Connects the terminal or standard input of a command with a program in a Pod. Used by `exec` and `run --stdin`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from trainmaster.cli import streams
from trainmaster.cli.context import CommandContext
from trainmaster.client.pod_exec import STDERR, ExecSession
from trainmaster.kit.scopes import Scope

_PIECE = 64 * 1024


@asynccontextmanager
async def reading(context: CommandContext) -> AsyncIterator[asyncio.Queue[bytes]]:
    """A queue of data from standard input; b"" is the end. Regular files are read in a thread."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
    loop = asyncio.get_running_loop()
    descriptor = context.stdin.fileno()

    async def read() -> None:
        while True:
            data = await loop.run_in_executor(None, os.read, descriptor, _PIECE)
            await pieces.put(data)
            if not data:
                return

    async def watch() -> None:
        while True:
            ready = asyncio.Event()
            loop.add_reader(descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                # Before reading: otherwise the reader fires again, and the next read blocks the event loop.
                loop.remove_reader(descriptor)
            data = os.read(descriptor, _PIECE)
            await pieces.put(data)
            if not data:
                return

    async with Scope("input") as scope:
        try:
            loop.add_reader(descriptor, lambda: None)
            loop.remove_reader(descriptor)
            scope.spawn(watch(), name="input.read")
        except PermissionError:  # epoll does not support regular files
            scope.spawn(read(), name="input.read")
        yield pieces


def show_output(context: CommandContext, channel: int, data: bytes) -> None:
    stream = context.err if channel == STDERR else context.out
    try:
        stream.flush()
        view = memoryview(data)
        while view:
            view = view[os.write(stream.fileno(), view) :]
    except OSError as error:
        if not streams.is_gone(error):
            raise
        streams.discard(stream)
        if stream is context.out:  # nobody reads the output, as with `| head`: end the program
            raise BrokenPipeError(error.errno, error.strerror) from None


@contextmanager
def raw_terminal(context: CommandContext) -> Iterator[None]:
    """Puts the terminal in raw mode, so that every key goes to the program, and restores it afterwards."""
    descriptor = context.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def following_size(session: ExecSession) -> Iterator[None]:
    def tell() -> None:
        try:
            size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        except OSError:
            return
        session.resize(size.columns, size.lines)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        tell()
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
