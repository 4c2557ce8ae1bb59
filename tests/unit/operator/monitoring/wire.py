"""Talks to a port of the operator without a socket."""

from __future__ import annotations

import re

from tests.unit.apiserver.http.wire import FakeTransport
from trainmaster.edge.connection import Connection
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.server import EdgeServer
from trainmaster.testing.virtual import settle


async def speak(port: EdgeServer[IncomingRequest], data: bytes) -> bytes:
    """What is answered on one connection. The port has been entered."""
    transport = FakeTransport()
    connection = Connection(port)
    connection.connection_made(transport)
    connection.data_received(data)
    await settle()
    connection.connection_lost(None)
    return transport.sent


async def ask(port: EdgeServer[IncomingRequest], line: str, *headers: str) -> tuple[int, str]:
    """The status code and the body of one answer."""
    text = "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", ""))
    head, _, body = (await speak(port, text.encode())).decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


def list_codes(answers: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


HOSTILE = [
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", [413]),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", [400]),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n", [400]),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", [413]),
    (b"\x16\x03\x01\r\n\r\n", [400]),
    (b"GET / HTTP/1.1\r\nX: " + b"A" * 70_000, [431]),
    (b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [414]),
    (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", []),
]
"""What is no request that either port serves, and how it is answered."""
