"""A request's body on its way to an application that reads while it arrives.

What waits is bounded: above the mark the connection stops reading until the application has caught up.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from trainmaster.edge.messages import EdgeRefusal

MARK_BYTES = 64 * 1024


class Faucet(Protocol):
    """Where the bytes come from."""

    def hold_reading(self) -> None: ...

    def go_on_with_body(self) -> None: ...

    def invite_body(self) -> None:
        """The application wants it: whoever asked with `Expect: 100-continue` is told to go on."""
        ...


class BodyChannel:
    def __init__(self, faucet: Faucet) -> None:
        self._faucet = faucet
        self._waiting = bytearray()
        self._news = asyncio.Event()
        self.is_complete = False
        """The last byte has arrived, though perhaps was not read yet."""
        self.is_lost = False
        self.refusal: EdgeRefusal | None = None
        """Why the rest is not taken."""

    # For the connection

    def feed(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) > MARK_BYTES:
            self._faucet.hold_reading()
        self._news.set()

    def finish(self) -> None:
        self.is_complete = True
        self._news.set()

    def fail(self, refusal: EdgeRefusal | None = None) -> None:
        """Nothing more comes: the peer is gone, or is refused."""
        self.is_lost = True
        self.refusal = self.refusal or refusal
        self._waiting.clear()
        self._news.set()

    # For the application

    @property
    def is_held(self) -> bool:
        """Whether it is the application that everybody waits for."""
        return len(self._waiting) > MARK_BYTES

    async def read(self) -> tuple[bytes, bool] | None:
        """The next piece and whether more follows; None when the rest will not come."""
        if not self._waiting and not self.is_complete and not self.is_lost:
            self._faucet.invite_body()
            self._news.clear()
            await self._news.wait()
        if self.is_lost:
            return None
        piece = bytes(self._waiting)
        self._waiting.clear()
        self._news.clear()
        if not self.is_complete:
            # More may be there at once, even the end.
            self._faucet.go_on_with_body()
        return piece, not self.is_complete or len(self._waiting) > 0
