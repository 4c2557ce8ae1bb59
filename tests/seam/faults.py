"""An HTTP proxy in front of an API server that answers some requests itself, as a server in trouble does.

It ends TLS, so it knows requests: which ones, how many, when. Which of them it disturbs depends on a seed. Its clients
trust its own certificate (`config`); what it passes on goes over connections of its own.

    conflict  409, and nothing was done; only for writes
    busy      429 with Retry-After
    failing   500; half of the writes were done all the same
    away      503 without Retry-After, as a load balancer says it
    reset     the connection is reset; half of the writes were done all the same
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from tests.kube.cluster import KubeCluster
from trainmaster.auth.pki import issue_server_keys
from trainmaster.client.kubeconfig import ClusterConfig, build_tls
from trainmaster.client.transport import HttpAnswer, Transport, TransportError
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.tls import build_context

Fault = Literal["conflict", "busy", "failing", "away", "reset"]
_CODES = {"conflict": 409, "busy": 429, "failing": 500, "away": 503}
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_LEFT_OUT = ("transfer-encoding", "content-length", "connection")
RETRY_AFTER = 1


@dataclass(frozen=True, slots=True)
class Storm:
    fault: Fault
    share: float = 1.0
    """Of the requests that it may strike."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request: when it came, in seconds of the loop, and whether a fault was the answer."""

    moment: float
    method: str
    path: str
    """Without the query."""
    struck: bool
    watches: bool = False


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    payload: bytes
    watches: bool


class FaultyServer:
    def __init__(self, cluster: KubeCluster, seed: int) -> None:
        upstream = ClusterConfig(cluster.server, ca_pem=cluster.ca.read_text())
        self._transport = Transport(upstream.server, tls=build_tls(upstream))
        self._keys = issue_server_keys(["127.0.0.1"], SystemClock())
        self._dice = random.Random(seed)
        self._token = cluster.token
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self.storm: Storm | None = None
        self.seen: list[Seen] = []
        self.refusing = False
        """New connections are reset."""

    @property
    def config(self) -> ClusterConfig:
        """For a client, which is the administrator."""
        return ClusterConfig(f"https://127.0.0.1:{self._port}", token=self._token, ca_pem=self._keys.ca)

    def count(self, *, since: float = 0.0) -> Counter[tuple[str, str]]:
        """(method, path) -> requests, disturbed or not."""
        return Counter((one.method, one.path) for one in self.seen if one.moment >= since)

    def cut(self) -> None:
        """Resets every connection, those of watches too."""
        for writer in tuple(self._open):
            writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultyServer]:
        context = build_context(self._keys.certificate, self._keys.key)
        async with Scope("faults") as scope:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                scope.spawn_guarded(self._serve(reader, writer), name="faults.connection")

            server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context, limit=1 << 22)
            self._port = server.sockets[0].getsockname()[1]
            try:
                yield self
            finally:
                server.close()
                self._transport.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self.refusing:
                return
            while (request := await _read(reader)) is not None:
                if not await self._answer(request, writer):
                    return
        except (OSError, TransportError, asyncio.IncompleteReadError):
            return
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        fault = self._draw(request)
        moment = asyncio.get_running_loop().time()
        self.seen.append(Seen(moment, request.method, request.path, fault is not None, request.watches))
        if fault is None:
            return await self._pass_on(request, writer)
        if fault in ("failing", "reset") and request.method in _WRITES and self._dice.random() < 0.5:
            await self._transport.exchange(request.payload, repeatable=False)
        if fault == "reset":
            return False
        writer.write(_build_refusal(_CODES[fault]))
        await writer.drain()
        return True

    def _draw(self, request: _Request) -> Fault | None:
        storm = self.storm
        if storm is None or (storm.fault == "conflict" and request.method not in _WRITES):
            return None
        return storm.fault if self._dice.random() < storm.share else None

    async def _pass_on(self, request: _Request, writer: asyncio.StreamWriter) -> bool:
        if not request.watches:
            answer = await self._transport.exchange(request.payload, repeatable=False)
            writer.write(_build_head(answer, f"Content-Length: {len(answer.body)}") + answer.body)
            await writer.drain()
            return True
        stream = await self._transport.open_stream(request.payload)
        try:
            writer.write(_build_head(stream.answer, "Transfer-Encoding: chunked"))
            async for piece in stream.pieces():
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        finally:
            stream.close()


async def _read(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    path, _, query = target.partition("?")
    return _Request(method, path, head + body, "watch=true" in query)


def _build_head(answer: HttpAnswer, length: str) -> bytes:
    lines = [f"{key}: {value}" for key, value in answer.headers.items() if key not in _LEFT_OUT]
    return "\r\n".join([f"HTTP/1.1 {answer.status} OK", *lines, length, "", ""]).encode()


def _build_refusal(code: int) -> bytes:
    text = f"a fault of the test: {code}"
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "code": code}
    body = json.dumps({**status, "reason": _REASONS[code]}).encode()
    headers = {"content-type": "application/json"} | ({"retry-after": str(RETRY_AFTER)} if code == 429 else {})
    return _build_head(HttpAnswer(code, headers), f"Content-Length: {len(body)}") + body
