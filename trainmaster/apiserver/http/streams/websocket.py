"""WebSocket framing (RFC 6455), server side, without I/O.

Not a library, because messages may be gigabytes (`kubectl cp`): they are passed on in pieces as they arrive and never
assembled. Used by `sessions`.

Invariant: only an incomplete frame header or control frame is buffered, 139 bytes at most.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from trainmaster.edge.connection import FramingError

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_LONGEST_CONTROL = 125

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
POLICY_VIOLATION = 1008


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a message; text and binary messages are not distinguished, as clients do not either."""

    data: bytes
    first: bool
    """Whether it begins a message."""


@dataclass(frozen=True, slots=True)
class WebSocketPing:
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    data: bytes


Event = Piece | WebSocketPing | Close


def build_accept(key: str) -> str:
    """The answer to the handshake's key."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _MAGIC, usedforsecurity=False).digest()).decode()


def is_valid_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def build_head(size: int, opcode: int = _BINARY) -> bytes:
    """Header of an unmasked, unfragmented frame with that many bytes."""
    if size < 126:
        return bytes((0x80 | opcode, size))
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")


def build_message(data: bytes) -> bytes:
    return build_head(len(data)) + data


def build_close(code: int, reason: str = "") -> bytes:
    body = code.to_bytes(2, "big") + reason.encode()[: _LONGEST_CONTROL - 2]
    return build_head(len(body), _CLOSE) + body


def build_ping() -> bytes:
    return build_head(0, _PING)


def build_pong(data: bytes) -> bytes:
    return build_head(len(data), _PONG) + data


def unmask(data: bytes, mask: bytes, offset: int) -> bytes:
    """As one large integer: 50 times faster than byte by byte."""
    shift = offset % 4
    key = (mask[shift:] + mask[:shift]) * (len(data) // 4 + 1)
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(key[: len(data)], "little")
    return mixed.to_bytes(len(data), "little")


class FrameReader:
    def __init__(self) -> None:
        self._head = b""
        self._opcode = 0
        self._final = True
        self._mask = b""
        self._left = 0
        """Bytes of the current frame that have not arrived yet."""
        self._seen = 0
        self._in_frame = False
        self._in_message = False
        self._first = False
        self._control = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete. Raises FramingError, after which the connection is unusable."""
        events: list[Event] = []
        position = 0
        while True:
            if not self._in_frame:
                position = self._take_head(data, position)
                if not self._in_frame:
                    return events
            piece = data[position : position + self._left]
            position += len(piece)
            self._take_body(piece, events)
            if self._in_frame:
                return events

    def _take_head(self, data: bytes, position: int) -> int:
        """The position of the body; if `_in_frame` is not set the header is incomplete."""
        have = self._head + data[position : position + 14 - len(self._head)]
        if len(have) >= 2:
            self._check_head(have)
        extra = {126: 2, 127: 8}.get(have[1] & 0x7F, 0) if len(have) >= 2 else 0
        size = 2 + extra + 4
        if len(have) < size:
            self._head = have
            return len(data)
        used = size - len(self._head)
        self._head = b""
        self._left = int.from_bytes(have[2 : 2 + extra], "big") if extra else have[1] & 0x7F
        if self._left >> 63:
            raise FramingError("a frame is too long")
        self._opcode, self._final = have[0] & 0x0F, bool(have[0] & 0x80)
        self._mask, self._seen, self._in_frame, self._control = have[2 + extra : size], 0, True, b""
        if self._opcode < _CLOSE:
            self._first = self._opcode != _CONTINUATION
            self._in_message = not self._final
        return position + used

    def _check_head(self, head: bytes) -> None:
        opcode, length = head[0] & 0x0F, head[1] & 0x7F
        if head[0] & 0x70:
            raise FramingError("reserved bits are set")
        if not head[1] & 0x80:
            raise FramingError("a frame is not masked")
        if opcode in (_CLOSE, _PING, _PONG):
            if length > _LONGEST_CONTROL or not head[0] & 0x80:
                raise FramingError("a control frame is too long or fragmented")
        elif opcode not in (_CONTINUATION, _TEXT, _BINARY):
            raise FramingError(f"unknown opcode {opcode}")
        elif (opcode == _CONTINUATION) is not self._in_message:
            raise FramingError("a message is continued that was not begun, or begun twice")

    def _take_body(self, masked: bytes, events: list[Event]) -> None:
        data = unmask(masked, self._mask, self._seen)
        self._seen += len(data)
        self._left -= len(data)
        self._in_frame = self._left > 0
        if self._opcode < _CLOSE:
            if data or (self._first and not self._in_frame):
                events.append(Piece(data, self._first))
                self._first = False
            return
        self._control += data
        if self._in_frame:
            return
        if self._opcode == _PING:
            events.append(WebSocketPing(self._control))
        elif self._opcode == _CLOSE:
            events.append(Close(self._control))
