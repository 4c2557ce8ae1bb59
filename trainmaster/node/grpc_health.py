"""grpc.health.v1.Health/Check on plain streams: the few HTTP/2 frames that one unary call needs.

Used by `checks` for grpc probes. Headers are sent uncompressed; those of the answer are ignored, because the message
contains the status, and an error has no message.
"""

from __future__ import annotations

import asyncio
import struct

SERVING = "SERVING"
_STATUSES = {0: "UNKNOWN", 1: SERVING, 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK, _END_STREAM, _END_HEADERS, _PADDED = 1, 1, 4, 8
_LONGEST = 1 << 16


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: str) -> str:
    """The name of the status. Raises ValueError if the other side does not speak gRPC or answers with an error."""
    name = service.encode()
    message = b"\x0a" + _encode_number(len(name)) + name if name else b""
    body = struct.pack(">BI", 0, len(message)) + message
    headers = b"".join(
        _encode_header(key, value)
        for key, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/grpc.health.v1.Health/Check"),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        )
    )
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _build_frame(_SETTINGS, 0, 0, b""))
    writer.write(_build_frame(_HEADERS, _END_HEADERS, 1, headers) + _build_frame(_DATA, _END_STREAM, 1, body))
    await writer.drain()
    return await _read_answer(reader, writer)


async def _read_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    data = b""
    while True:
        head = await reader.readexactly(9)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if length > _LONGEST:
            raise ValueError("the answer is not HTTP/2")
        payload = await reader.readexactly(length)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_build_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            writer.write(_build_frame(_PING, _ACK, 0, payload))
        elif kind == _DATA:
            data += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        elif kind in (_RESET, _GOAWAY):
            raise ValueError("the server refused the call")
        if kind in (_DATA, _HEADERS) and (_is_whole(data) or flags & _END_STREAM):
            return _read_status(data)


def _is_whole(data: bytes) -> bool:
    return len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[1:5], "big")


def _read_status(data: bytes) -> str:
    if not _is_whole(data):
        raise ValueError("the server does not implement the health service")
    message = data[5:]
    # HealthCheckResponse has one field, number 1, a small enum; without it the status is 0.
    return _STATUSES.get(message[1] if message[:1] == b"\x08" else 0, "UNKNOWN")


def _build_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _encode_header(name: str, value: str) -> bytes:
    """Literal, never indexed, not Huffman coded. Both are shorter than 127 bytes."""
    return b"\x10" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def _encode_number(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes((value & 127 | 128,))
        value >>= 7
    return found + bytes((value,))
