"""A response with the bytes of a file, whose size is announced."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import BinaryIO

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "application/octet-stream"
_PIECE = 256 * 1024


class FileAnswer(Response):
    """Reads in threads and closes the file, whatever happens. A client that goes away is noticed when its next piece is
    sent."""

    media_type = MEDIA_TYPE

    def __init__(self, stream: BinaryIO, size: int, headers: Mapping[str, str]) -> None:
        super().__init__(headers={**headers, "content-length": str(size)})
        self._stream = stream
        self._left = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if not self._left:
                await send({"type": "http.response.body", "body": b""})
            while self._left:
                piece = await asyncio.to_thread(self._stream.read, min(_PIECE, self._left))
                if not piece:
                    # Less than announced: the connection is cut, so that nobody takes it for the whole file.
                    raise ConnectionAbortedError("the file has become shorter while it was sent")
                self._left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": self._left > 0})
        finally:
            self._stream.close()
