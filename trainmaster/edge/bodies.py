"""Streams a request's body to an application that reads it while it arrives.

Buffering is bounded: above a limit the connection stops reading until the application has caught up.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from trainmaster.edge.refusals import EdgeRefusal

MARK_BYTES = 64 * 1024


class BodySource(Protocol):
    """Provides the bytes of a body."""

    def hold_reading(self) -> None: ...

    def resume_body(self) -> None: ...

    def send_continue(self) -> None:
        """Called when the application wants the body: answers `Expect: 100-continue`."""
        ...


class BodyChannel:
    def __init__(self, source: BodySource) -> None:
        self._source = source
        self._waiting = bytearray()
        self._news = asyncio.Event()
        self.is_complete = False
        """The last byte has arrived, but may not have been read."""
        self.is_lost = False
        self.refusal: EdgeRefusal | None = None
        """Why the rest of the body is refused."""

    # For the connection

    def feed(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) > MARK_BYTES:
            self._source.hold_reading()
        self._news.set()

    def finish(self) -> None:
        self.is_complete = True
        self._news.set()

    def fail(self, refusal: EdgeRefusal | None = None) -> None:
        """The rest of the body will not come: the peer is gone or was refused."""
        self.is_lost = True
        self.refusal = self.refusal or refusal
        self._waiting.clear()
        self._news.set()

    # For the application

    @property
    def is_held(self) -> bool:
        """Whether reading is paused until the application catches up."""
        return len(self._waiting) > MARK_BYTES

    async def read(self) -> tuple[bytes, bool] | None:
        """The next piece and whether more follows; None if the rest will not come."""
        if not self._waiting and not self.is_complete and not self.is_lost:
            self._source.send_continue()
            self._news.clear()
            await self._news.wait()
        if self.is_lost:
            return None
        piece = bytes(self._waiting)
        self._waiting.clear()
        self._news.clear()
        if not self.is_complete:
            # More may be available immediately, even the end.
            self._source.resume_body()
        return piece, not self.is_complete or len(self._waiting) > 0
