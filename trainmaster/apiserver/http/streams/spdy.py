"""SPDY/3.1 framing, server side, without I/O; the subset that kubectl uses.

kubectl before 1.30 uses it for exec and attach, every kubectl for port-forward (since 1.31 inside a WebSocket). Header
blocks share one compression state per direction, so each must be read, even if its stream is refused. These clients do
not use flow control windows: TCP slows down the whole connection.

Invariant: only an incomplete frame header or control frame is buffered, and headers are bounded before and after
decompression.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from trainmaster.edge.connection import FramingError

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN = 1
_CONTROL = 0x8003_0000
_LONGEST_CONTROL = 16 * 1024
_LONGEST_HEADERS = 64 * 1024
_MOST_HEADERS = 100
_CANCEL = 5

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_TAIL = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    b"403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    b"Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    b"chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    b"text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(
        struct.pack(">I", len(word)) + word.encode() for word in (word.replace("_", " ") for word in _WORDS.split())
    )
    + _TAIL
)
"""Both sides begin compressing headers from this text; it is part of the protocol."""


@dataclass(frozen=True, slots=True)
class Opened:
    stream: int
    headers: dict[str, str]
    final: bool
    """The peer will send nothing on it."""


@dataclass(frozen=True, slots=True)
class Data:
    stream: int
    data: bytes
    final: bool


@dataclass(frozen=True, slots=True)
class Reset:
    stream: int


@dataclass(frozen=True, slots=True)
class SpdyPing:
    data: bytes


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer opens no more streams."""


Event = Opened | Data | Reset | SpdyPing | GoAway


class SpdyReader:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._head = b""
        self._body = b""
        self._left = 0
        self._stream = 0
        self._type = 0
        """Type of the current control frame; 0 for data."""
        self._flags = 0
        self._in_frame = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete; data is passed on immediately. Raises FramingError."""
        events: list[Event] = []
        position = 0
        while True:
            if not self._in_frame:
                head = self._head + data[position : position + 8 - len(self._head)]
                position += len(head) - len(self._head)
                self._head = head
                if len(head) < 8:
                    return events
                self._begin(head)
            piece = data[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            self._in_frame = self._left > 0
            self._take(piece, events)
            if self._in_frame:
                return events

    def _begin(self, head: bytes) -> None:
        first, second = struct.unpack(">II", head)
        self._head, self._body = b"", b""
        self._flags, self._left, self._in_frame = second >> 24, second & 0xFF_FFFF, True
        if first < 1 << 31:
            self._type, self._stream = 0, first
            return
        self._type = first & 0xFFFF
        if first & 0xFFFF_0000 != _CONTROL or not self._type:
            raise FramingError("not a SPDY/3.1 frame")
        if self._left > _LONGEST_CONTROL:
            raise FramingError("a control frame is too long")

    def _take(self, piece: bytes, events: list[Event]) -> None:
        if not self._type:
            final = bool(self._flags & _FIN) and not self._in_frame
            if piece or final:
                events.append(Data(self._stream, piece, final))
            return
        self._body += piece
        if not self._in_frame:
            event = self._read_control(self._body)
            if event is not None:
                events.append(event)

    def _read_control(self, body: bytes) -> Event | None:
        kind = self._type
        if kind == _SYN_STREAM:
            stream = _number(body, 0)
            return Opened(stream, self._read_headers(body[10:]), bool(self._flags & _FIN))
        if kind in (_SYN_REPLY, _HEADERS):
            self._read_headers(body[4:])
        elif kind == _RST_STREAM:
            return Reset(_number(body, 0))
        elif kind == _PING:
            # Even numbers are answers to our pings.
            return SpdyPing(body) if _number(body, 0) % 2 else None
        elif kind == _GOAWAY:
            return GoAway()
        elif kind not in (_SETTINGS, _WINDOW_UPDATE):
            raise FramingError(f"unknown control frame {kind}")
        return None

    def _read_headers(self, block: bytes) -> dict[str, str]:
        try:
            raw = self._inflate.decompress(block, _LONGEST_HEADERS)
        except zlib.error as error:
            raise FramingError(f"headers cannot be read: {error}") from None
        if self._inflate.unconsumed_tail:
            raise FramingError("headers are too long")
        count = _number(raw, 0)
        if count > _MOST_HEADERS:
            raise FramingError("too many headers")
        position, words = 4, []
        for _ in range(2 * count):
            size = _number(raw, position)
            position += 4 + size
            if position > len(raw):
                raise FramingError("headers are cut short")
            words.append(raw[position - size : position].decode("latin-1"))
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


def _number(data: bytes, position: int) -> int:
    if len(data) < position + 4:
        raise FramingError("a frame is cut short")
    return int.from_bytes(data[position : position + 4], "big") & 0x7FFF_FFFF


class SpdyWriter:
    """Builds frames. One per session, because of the compression state."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def build_reply(self, stream: int) -> bytes:
        block = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return build_control(_SYN_REPLY, stream.to_bytes(4, "big") + block)

    def build_data(self, stream: int, data: bytes, *, final: bool = False) -> bytes:
        return struct.pack(">II", stream, (_FIN if final else 0) << 24 | len(data)) + data

    def build_reset(self, stream: int) -> bytes:
        return build_control(_RST_STREAM, struct.pack(">II", stream, _CANCEL))

    def build_ping(self, data: bytes = b"\0\0\0\2") -> bytes:
        return build_control(_PING, data)

    def build_goaway(self, last: int) -> bytes:
        return build_control(_GOAWAY, struct.pack(">II", last, 0))


def build_control(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">II", _CONTROL | kind, flags << 24 | len(body)) + body
