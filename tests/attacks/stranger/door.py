"""Sockets to one port of a server, for those who use no library and know nobody there."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

SECONDS = 30.0
MIB = 1024 * 1024


def read_memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024


@dataclass(frozen=True)
class Door:
    url: str
    ca: Path
    name: str = ""
    """The server's in its certificate, if it is not that of the URL."""
    context: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", ssl.create_default_context(cafile=str(self.ca)))

    @property
    def where(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port

    def knock(self) -> socket.socket:
        """A connection that has said nothing yet, not even hello."""
        return socket.create_connection(self.where, timeout=SECONDS)

    def enter(self) -> ssl.SSLSocket:
        plain = self.knock()
        try:
            return self.context.wrap_socket(plain, server_hostname=self.name or self.where[0])
        except BaseException:
            plain.close()
            raise

    def ask(self, payload: bytes) -> bytes:
        """On a connection of its own; the first answer."""
        with self.enter() as sock:
            with suppress(ConnectionError, ssl.SSLError):  # refused before all was sent; the answer is there
                sock.sendall(payload)
            return read_answer(sock)

    def get(self, path: str, token: str = "") -> bytes:
        return self.ask(build_get(path, token))


def build_get(path: str, token: str = "", *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, *([f"Authorization: Bearer {token}"] if token else [])]
    return "\r\n".join([*lines, "", ""]).encode()


def read_answer(sock: socket.socket, seconds: float = SECONDS) -> bytes:
    """One answer with its length, or whatever came before the connection ended."""
    sock.settimeout(seconds)
    data = b""
    try:
        while not _is_whole(data) and (piece := sock.recv(65536)):
            data += piece
    except ConnectionError:
        pass
    return data


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    if head.startswith(b"HTTP/1.1 100"):
        return _is_whole(body)
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return body.endswith(b"0\r\n\r\n")


def read_all(sock: socket.socket, seconds: float = SECONDS) -> bytes:
    """Until the peer closes, politely or not."""
    sock.settimeout(seconds)
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except (ConnectionError, ssl.SSLError) as error:
        if isinstance(error, TimeoutError):
            raise
    return data


def send_until_cut(sock: socket.socket, piece: bytes, most: int) -> int:
    """How many bytes the server took before it stopped reading or closed."""
    sent = 0
    sock.settimeout(1)
    try:
        while sent < most:
            sock.sendall(piece)
            sent += len(piece)
    except OSError:  # a timeout too: the server reads no more
        pass
    return sent


@contextmanager
def crowd(door: Door, count: int, *, handshake: bool) -> Iterator[list[socket.socket]]:
    """Connections that are held open; those that the server refuses or closes meanwhile count as made."""
    with ExitStack() as stack:
        made: list[socket.socket] = []
        for _ in range(count):
            try:
                made.append(stack.enter_context(door.enter() if handshake else door.knock()))
            except OSError:
                continue
        yield made


def is_closed(sock: socket.socket) -> bool:
    """Whether the server has closed it; what came before is read and dropped."""
    sock.settimeout(0.01)
    try:
        while sock.recv(65536):
            pass
    except (TimeoutError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def wait_until(check: object, seconds: float = SECONDS) -> None:
    assert callable(check)
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)
