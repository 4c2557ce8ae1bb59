"""A connection that carries others (`edge.multiplexing`): the upgrade, and the session that passes the bytes on.

Each carried connection is authenticated, limited and audited like any other, request by request; the carrier only needs
a caller who is known. It ends when they are not known any more. When the server drains, it waits for what it carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.messages import ApiRequest
from trainmaster.apiserver.http.streams import websocket
from trainmaster.apiserver.http.streams.contract import Wire
from trainmaster.apiserver.http.streams.handler import asks_for
from trainmaster.edge import multiplexing
from trainmaster.edge.multiplexing import Accept, Multiplexer

UPGRADE = f"Upgrade: {multiplexing.PROTOCOL}\r\n".encode()


@dataclass(frozen=True, slots=True)
class CarryResponse:
    """Instead of an answer: the connection carries others from now on."""


def accept_carrier(request: ApiRequest) -> CarryResponse:
    if request.method != "GET":
        raise status.method_not_allowed()
    if not asks_for(request, multiplexing.PROTOCOL):
        raise status.bad_request(f"unable to upgrade: this path is for Upgrade: {multiplexing.PROTOCOL}")
    return CarryResponse()


class CarrierSession:
    """Implements `streams.contract.UpgradedSession`."""

    def __init__(self, wire: Wire, accept: Accept, extra: Callable[[], Mapping[str, object]]) -> None:
        self._wire = wire
        self._news = asyncio.Event()
        self._is_held = False
        self._multiplexer = Multiplexer(wire, accept=accept, extra=extra, note=self._news.set)
        self.verdict: StatusError | None = None

    @property
    def is_held(self) -> bool:
        return self._is_held

    def feed(self, data: bytes) -> None:
        self._multiplexer.feed(data)
        if not self._wire.is_ready() and not self._is_held:
            # The answers to what is read now could not be sent.
            self._is_held = True
            self._wire.hold_reading()
            self._news.set()

    def probe(self) -> None:
        self._multiplexer.send(multiplexing.GRANT, 0)

    def close(self, code: int = websocket.NORMAL, reason: str = "") -> None:
        self._multiplexer.lose(None)
        self._wire.linger()

    async def serve(self) -> None:
        try:
            await self._flush()
        except asyncio.CancelledError:
            if self.verdict is None and not self._wire.closing:
                await self._flush(until_empty=True)
            raise
        finally:
            self._multiplexer.lose(None)

    async def _flush(self, *, until_empty: bool = False) -> None:
        """Sends what the connection was not ready for, once it is."""
        while not until_empty or len(self._multiplexer):
            await self._news.wait()
            self._news.clear()
            await self._wire.wait_until_writable()
            if self._is_held:
                self._is_held = False
                self._wire.resume_reading()
            self._multiplexer.flush()
