"""Bytes over TLS to our server, and what comes back."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.server import ServerProcess

SECONDS = 20.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def check_refused(self, *codes: int) -> dict[str, Any]:
        """A Status of one of these codes (any 4xx without); returns it."""
        assert 400 <= self.status < 500, (self.status, self.body[:500])
        assert not codes or self.status in codes, (self.status, self.body[:500])
        answer: dict[str, Any] = self.json()
        assert answer["kind"] == "Status" and answer["status"] == "Failure" and answer["code"] == self.status
        assert answer["message"] and answer["reason"]
        return answer


class Closed(Exception):
    """The server closed the connection without an answer."""


class Hostile:
    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        parts = urlsplit(server.url)
        assert parts.hostname is not None and parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.token = (server.home / "pki" / "owner.token").read_text()

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.server.ca))

    def connect(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        plain = socket.create_connection((self.host, self.port), timeout=SECONDS)
        try:
            return (context or self.context()).wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def head(self, method: str, path: str, *headers: str, token: str | None = None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", *headers]
        lines.append(f"Authorization: Bearer {self.token if token is None else token}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    def send(self, payload: bytes) -> Reply:
        """On a connection of its own."""
        with self.connect() as sock:
            sock.sendall(payload)
            return read_reply(sock)

    def request(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json", *headers: str
    ) -> Reply:
        more = list(headers)
        if body is not None:
            more += [f"Content-Length: {len(body)}", f"Content-Type: {content_type}"]
        return self.send(self.head(method, path, *more) + (body or b""))

    def post(self, path: str, obj: Any) -> Reply:
        return self.request("POST", path, json.dumps(obj).encode())

    def count(self, path: str) -> int:
        """How many objects a collection holds: nothing hostile may change it."""
        return len(self.request("GET", path).json()["items"])


def read_reply(sock: socket.socket) -> Reply:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            raise Closed(data[:200])
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", 0))
    while len(rest) < length:
        piece = sock.recv(65536)
        if not piece:
            raise Closed(rest[:200])
        rest += piece
    return Reply(int(first.split()[1]), headers, rest[:length])
