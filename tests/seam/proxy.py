"""A TCP proxy in front of an API server, so that a test can cut connections and refuse new ones.

It passes bytes both ways and understands nothing of them; TLS goes through it. One per test, on a port of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainmaster.kit.scopes import Scope

_PIECE = 65_536


class Proxy:
    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.accepted = 0
        self.cuts = 0
        self.refusing = False
        self.received = 0
        """Bytes of the server's answers."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        async with Scope("proxy") as scope:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                # Here, because a task that is cancelled before it begins never sees the connection.
                self._open.add(writer)
                self.accepted += 1
                scope.spawn(self._serve(reader, writer), name="proxy.connection")

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            try:
                yield self
            finally:
                server.close()
                self.cut()

    def cut(self) -> None:
        """Resets every connection."""
        self.cuts += len(self._open) // 2
        for writer in tuple(self._open):
            writer.transport.abort()

    def _count(self, size: int) -> None:
        self.received += size

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other: asyncio.StreamWriter | None = None
        try:
            if self.refusing:
                return
            source, other = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(other)
            async with Scope("connection") as scope:
                works = _copy(reader, other), _copy(source, writer, self._count)
                both = [scope.spawn(work, name="proxy.copy") for work in works]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for end in (writer, other):
                if end is not None:
                    self._open.discard(end)
                    end.transport.abort()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None] | None = None
) -> None:
    try:
        while piece := await reader.read(_PIECE):
            if count is not None:
                count(len(piece))
            writer.write(piece)
            await writer.drain()
    except OSError:
        return
