"""The client's side of SPDY, for tests."""

from __future__ import annotations

import struct
import zlib

from trainmaster.apiserver.http.streams.spdy import DICTIONARY, build_control


class SpdyClient:
    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._next = 1

    def pack_headers(self, headers: dict[str, str]) -> bytes:
        raw = struct.pack(">I", len(headers))
        for word in (text.encode() for pair in headers.items() for text in pair):
            raw += struct.pack(">I", len(word)) + word
        return self.compress(raw)

    def compress(self, raw: bytes) -> bytes:
        return self._deflate.compress(raw) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def open(self, *, final: bool = False, stream: int = 0, **headers: str) -> bytes:
        stream = stream or self._next
        self._next = stream + 2
        body = struct.pack(">IIH", stream, 0, 0) + self.pack_headers(headers)
        return build_control(1, body, 1 if final else 0)

    def data(self, stream: int, data: bytes, *, final: bool = False) -> bytes:
        return struct.pack(">II", stream, (1 if final else 0) << 24 | len(data)) + data

    def reset(self, stream: int) -> bytes:
        return build_control(3, struct.pack(">II", stream, 5))


def split(sent: bytes) -> list[tuple[int, int, bytes]]:
    """(type or 0 for data, stream, content) of what a server sent; a FIN shows as type -1."""
    found = []
    while sent:
        first, second = struct.unpack(">II", sent[:8])
        size, flags = second & 0xFF_FFFF, second >> 24
        body, sent = sent[8 : 8 + size], sent[8 + size :]
        if first >> 31:
            found.append((first & 0xFFFF, int.from_bytes(body[:4], "big"), body[4:]))
        else:
            found.append((-1 if flags & 1 else 0, first, body))
    return found
