"""Reads and writes pipes and terminals from the event loop, one piece at a time.

Nothing is read until requested, and writing waits until the kernel accepts it, so a slow side holds back the other and
nothing accumulates. asyncio's own pipe transports read ahead and treat the end of a terminal as an error.
"""

from __future__ import annotations

import asyncio
import errno
import os

PIECE = 64 * 1024


class FdReader:
    """Owns the descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._patience: float | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._given_up = False

    async def read(self) -> bytes:
        """b"" at the end, which for a terminal means that nobody has its other side open."""
        while self._fd >= 0:
            try:
                return os.read(self._fd, PIECE)
            except BlockingIOError:
                if self._given_up:
                    return b""
                await self._wait()
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise
        return b""

    async def _wait(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, _wake, waiter)
        self._set_timer()
        try:
            await waiter
        finally:
            self._waiter = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._fd >= 0:
                self._loop.remove_reader(self._fd)

    def end_after_idle(self, seconds: float) -> None:
        """The writer has exited: stop when nothing arrives for this long, even if descendants keep the other side
        open."""
        self._patience = seconds
        self._set_timer()

    def _set_timer(self) -> None:
        if self._patience is not None and self._waiter is not None and self._timer is None:
            self._timer = self._loop.call_later(self._patience, self._give_up)

    def _give_up(self) -> None:
        self._given_up = True
        if self._waiter is not None:
            _wake(self._waiter)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._waiter is not None:
            _wake(self._waiter)


class FdWriter:
    """Owns the descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Returns when everything was accepted; data that nobody will read is dropped."""
        rest = memoryview(data)
        while rest and self._fd >= 0:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                await self._wait()
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    raise
                self.close()

    async def _wait(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        self._loop.add_writer(self._fd, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if self._fd >= 0:
                self._loop.remove_writer(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._waiter is not None:
            _wake(self._waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
