"""A connection to the server that carries others, so that many streams need one TLS handshake (`edge.multiplexing`).

`client.transport` opens one if it is told how to ask for it, and uses ordinary connections if the server has none.
"""

from __future__ import annotations

import asyncio
from typing import cast

from trainmaster.edge.multiplexing import MOST, Multiplexer
from trainmaster.edge.refusals import FramingError
from trainmaster.kit.keepalive import ask_for_signs_of_life

_LARGEST_HEAD = 64 * 1024


class CarrierConnection(asyncio.Protocol):
    """Implements `edge.multiplexing.Carrier`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._multiplexer: Multiplexer | None = None
        self._keeps_up = True
        self.lost = False
        self.code = 0
        """The status of the answer to the request for an upgrade; 101 if it was granted."""

    @property
    def can_open(self) -> bool:
        return not self.lost and self._multiplexer is not None and len(self._multiplexer) < MOST

    async def join(self, payload: bytes) -> None:
        """Asks for the upgrade, and waits for the answer. Raises OSError if none comes."""
        self.write(payload)
        await self._answered

    def open(self, protocol: asyncio.Protocol) -> None:
        assert self._multiplexer is not None
        self._multiplexer.open(protocol)

    def close(self) -> None:
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport has the methods of asyncio.Transport, but is not an instance of it.
        self._transport = cast(asyncio.Transport, transport)
        ask_for_signs_of_life(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._multiplexer is None:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if end or len(head) > _LARGEST_HEAD:
                self._read_head(head)
        if self._multiplexer is not None and data:
            try:
                self._multiplexer.feed(data)
            except FramingError:
                self.close()

    def _read_head(self, head: bytes) -> None:
        words = head.split(maxsplit=2)
        self.code = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if self.code == 101:
            self._multiplexer = Multiplexer(self)
        if not self._answered.done():
            self._answered.set_result(None)

    def pause_writing(self) -> None:
        self._keeps_up = False

    def resume_writing(self) -> None:
        self._keeps_up = True
        if self._multiplexer is not None:
            self._multiplexer.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self._answered.done():
            self._answered.set_exception(exc or ConnectionResetError("the server closed the connection"))
        if self._multiplexer is not None:
            self._multiplexer.lose(exc)

    # Carrier

    def write(self, data: bytes) -> None:
        if not self.lost and self._transport is not None:
            self._transport.write(data)

    def is_ready(self) -> bool:
        return self._keeps_up and not self.lost
