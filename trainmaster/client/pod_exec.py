"""Runs a program in a Pod's container, or attaches to the one that runs there, over a WebSocket: any Kubernetes API
server from 1.29 on, including ours.

    async with open_exec(config, "default", "my-pod", ExecOptions(["sh"], stdin=True, tty=True)) as session:
        async for channel, data in session.outputs(): ...
        session.code

Channels have the numbers that Kubernetes defines. At the end a Status with the exit code arrives on the error channel.
The newer subprotocol (v5) can signal the end of our input, the older one cannot. The framing is implemented here,
because our HTTP client has no WebSockets and the client side is short. Used by `trainmaster exec` and `run --stdin`.

Invariant: at most one frame is buffered, and writing waits for a slow server.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import orjson

from trainmaster.api import status
from trainmaster.api.reading import list_items
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.client.http import Unreachable, build_path
from trainmaster.client.kubeconfig import ClusterConfig, build_tls
from trainmaster.version import __version__

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_CLOSE_CHANNEL = 255
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LARGEST_HEAD = 64 * 1024
_LARGEST_FRAME = 16 << 20
_LARGEST_ANSWER = 1 << 20
_PIECE = 32 * 1024


@dataclass(frozen=True, slots=True)
class ExecOptions:
    command: Sequence[str] = ()
    """() to attach to the container's own program."""
    container: str = ""
    stdin: bool = False
    tty: bool = False
    output: bool = True
    """Whether to receive its output."""


class ExecSession:
    """A running program. `code` is its exit code once `outputs` has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str) -> None:
        self._reader = reader
        self._writer = writer
        self._can_half_close = protocol == V5
        self._end: bytes = b""
        self.code: int | None = None

    async def outputs(self) -> AsyncIterator[tuple[int, bytes]]:
        """(STDOUT or STDERR, bytes) until the program has ended. Raises StatusError if it could not be run."""
        channel = -1
        async for first, data in self._frames():
            if first:
                channel = data[0] if data else -1
                data = data[1:]
            if channel in (STDOUT, STDERR) and data:
                yield channel, data
            elif channel == ERROR:
                self._end += data
        self.code = read_end(self._end)

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE):
            self._send(_BINARY, bytes((STDIN,)) + data[start : start + _PIECE])
            await self._writer.drain()

    def close_input(self) -> bool:
        """Signals the end of input; False if the protocol cannot."""
        if self._can_half_close:
            self._send(_BINARY, bytes((_CLOSE_CHANNEL, STDIN)))
        return self._can_half_close

    def resize(self, columns: int, rows: int) -> None:
        self._send(_BINARY, bytes((RESIZE,)) + orjson.dumps({"Width": columns, "Height": rows}))

    def _send(self, opcode: int, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(build_frame(opcode, data, os.urandom(4)))

    async def _frames(self) -> AsyncIterator[tuple[bool, bytes]]:
        """(whether a message begins, its bytes)."""
        while True:
            try:
                opcode, data = await self._read_frame()
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                return  # without a Status the exit code is unknown, which `read_end` reports
            if opcode == _CLOSE:
                self._send(_CLOSE, data[:2])
                return
            if opcode == _PING:
                self._send(_PONG, data)
            elif opcode < _CLOSE:
                yield opcode != _CONTINUATION, data

    async def _read_frame(self) -> tuple[int, bytes]:
        head = await self._reader.readexactly(2)
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        if head[1] & 0x80 or size > _LARGEST_FRAME:
            raise StatusError(500, "InternalError", "the server's answer is no WebSocket as Kubernetes speaks it")
        return head[0] & 0x0F, await self._reader.readexactly(size)


@asynccontextmanager
async def open_exec(config: ClusterConfig, namespace: str, pod: str, wanted: ExecOptions) -> AsyncIterator[ExecSession]:
    """Raises StatusError if the server refuses, `Unreachable` if there is none."""
    reader, writer = await _connect(config)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            protocol = await _shake_hands(reader, writer, config, _build_target(config, namespace, pod, wanted))
        yield ExecSession(reader, writer, protocol)
    except TimeoutError:
        raise Unreachable(f"no answer from {config.server} within {_ANSWER_SECONDS:g} s", sent=True) from None
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):  # closed either way
            await writer.wait_closed()


async def _connect(config: ClusterConfig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(config.server)
    tls = build_tls(config)
    host, port = parts.hostname or "", parts.port or (443 if tls else 80)
    name = (config.tls_server_name or host) if tls else None
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
    except TimeoutError:
        raise Unreachable(f"no connection to {config.server} within {_CONNECT_SECONDS:g} s", sent=False) from None
    except (OSError, ssl.SSLError) as error:
        raise Unreachable(f"cannot connect to {config.server}: {error}", sent=False) from error


def _build_target(config: ClusterConfig, namespace: str, pod: str, wanted: ExecOptions) -> str:
    query: list[tuple[str, str]] = [("command", word) for word in wanted.command]
    if wanted.container:
        query.append(("container", wanted.container))
    has_errors = wanted.output and not wanted.tty
    asked = {"stdin": wanted.stdin, "stdout": wanted.output, "stderr": has_errors, "tty": wanted.tty}
    query += [(name, "true") for name, value in asked.items() if value]
    path = build_path(PODS, namespace, pod, "exec" if wanted.command else "attach")
    return f"{urlsplit(config.server).path.rstrip('/')}{path}?{urlencode(query)}"


async def _shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, config: ClusterConfig, target: str
) -> str:
    """Returns the subprotocol that the server chose."""
    key = base64.b64encode(os.urandom(16)).decode()
    headers = [
        ("Host", urlsplit(config.server).netloc),
        ("User-Agent", f"trainmaster/{__version__}"),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Protocol", f"{V5}, {V4}"),
    ]
    token = config.read_token()
    if token:
        headers.append(("Authorization", f"Bearer {token}"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    writer.write(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
        raise Unreachable(f"{config.server} ended the connection without an answer", sent=True) from error
    code, answer = _read_head(raw)
    if code != 101:
        raise await _read_refusal(reader, code, answer)
    expected = base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()
    protocol = answer.get("sec-websocket-protocol", "")
    if answer.get("sec-websocket-accept") != expected or protocol not in (V5, V4):
        raise StatusError(500, "InternalError", "the server speaks no protocol for exec that is known here")
    return protocol


def _read_head(raw: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = raw[:_LARGEST_HEAD].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    code = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    pairs = (line.partition(":") for line in lines if ":" in line)
    return code, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_refusal(reader: asyncio.StreamReader, code: int, headers: dict[str, str]) -> StatusError:
    size = headers.get("content-length", "")
    body = b""
    if size.isdigit() and int(size) <= _LARGEST_ANSWER:
        body = await reader.readexactly(int(size))
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return status.from_object(found, code=code)
    text = body[:200].decode(errors="replace").strip() or f"the server answered {code}"
    return status.from_object({"message": text, "code": code})


def build_frame(opcode: int, data: bytes, mask: bytes) -> bytes:
    """Builds a masked frame, as clients must."""
    size = len(data)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    # As one large integer: 50 times faster than byte by byte.
    key = (mask * (size // 4 + 1))[:size]
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(key, "little")
    return head + mask + mixed.to_bytes(size, "little")


def read_end(text: bytes) -> int:
    """The exit code in the final Status. Raises StatusError if it says that the program could not be run, or if there
    is none because the connection broke."""
    if not text:
        raise Unreachable("the connection ended before the program did", sent=True)
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise StatusError(500, "InternalError", f"the server's last word is no Status: {text[:200]!r}")
    if found.get("status") == "Success":
        return 0
    for cause in list_items(found, "details", "causes"):
        if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdigit():
            return int(cause["message"])
    raise status.from_object(found, code=int(found.get("code") or 500))
