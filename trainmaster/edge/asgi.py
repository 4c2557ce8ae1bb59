"""Serves an ASGI application on a port, with the same connections and limits as the API server.

The application is loaded at the first request, so an unused port costs nothing. A request is served as soon as its head
has arrived; the application reads the body from the connection, and writing an answer waits for a slow reader.

`scope["client"]` is the peer. `scope["recognise"]` tells the gatekeeper whose connection it is: call it with the user
and whether they are an administrator. It raises Refusal 429 if that user has too many connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from trainmaster.edge.bodies import BodyChannel
from trainmaster.edge.connection import PIECE_BYTES, Connection
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import ArrivingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HeaderLines = Iterable[tuple[bytes, bytes]]
EncodeRefusal = Callable[[EdgeRefusal], tuple[HeaderLines, bytes]]
"""Headers and body of a refusal, in this port's format."""
Peer = Connection[ArrivingRequest]

_LINES = {code.value: f"HTTP/1.1 {code.value} {code.phrase}\r\n".encode() for code in HTTPStatus}
_EMPTY = (204, 304)
_RETRY_SECONDS = 5


class AsgiApplication(Protocol):
    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...

    def stop(self) -> None:
        """Ends streaming answers; others are completed."""
        ...


Load = Callable[[], Awaitable[AsgiApplication]]


class AsgiServer(EdgeServer[ArrivingRequest]):
    reads_while_serving = True
    make_request = ArrivingRequest

    def __init__(
        self,
        load: Load,
        listener: socket.socket,
        encode_refusal: EncodeRefusal,
        limits: EdgeLimits,
        clock: Clock,
        *,
        gatekeeper: Gatekeeper | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(limits, clock, gatekeeper=gatekeeper, tls=tls, name="rest")
        self._load = load
        self._listener = listener
        self._encode_refusal = encode_refusal
        self._application: AsgiApplication | None = None
        self._loading = asyncio.Lock()
        self._exchanges: dict[Peer, Exchange] = {}
        self.is_secure = tls is not None

    def open_socket(self) -> socket.socket:
        return self._listener

    def stop_streams(self) -> None:
        if self._application is not None:
            self._application.stop()

    def serve(self, request: ArrivingRequest, connection: Peer) -> None:
        exchange = Exchange(self, request, connection)
        self._exchanges[connection] = exchange
        self._scope.spawn_guarded(self._run(exchange, connection), name="rest.request")

    def closed(self, connection: Peer) -> None:
        super().closed(connection)
        exchange = self._exchanges.get(connection)
        if exchange is not None:
            exchange.gone.set()

    async def _run(self, exchange: Exchange, connection: Peer) -> None:
        try:
            await exchange.run(await self._get_application())
        finally:
            # The connection's next request may have started already.
            if self._exchanges.get(connection) is exchange:
                del self._exchanges[connection]

    async def _get_application(self) -> AsgiApplication | None:
        """None if it cannot be loaded right now; the next request tries again."""
        if self._application is None:
            async with self._loading:
                if self._application is None:
                    try:
                        self._application = await self._load()
                    except Exception:  # e.g. out of descriptors or memory, which may be temporary
                        log.exception("cannot be loaded", extra={"action": "rest.load"})
        return self._application

    def refuse(self, refusal: EdgeRefusal, connection: Peer) -> None:
        connection.answer(self.encode(refusal), keep_alive=False, linger=True)

    def encode(self, refusal: EdgeRefusal, *, keep_alive: bool = False) -> bytes:
        headers, body = self._encode_refusal(refusal)
        return build_head(refusal.code, [*headers, _build_length(body)], keep_alive=keep_alive) + body

    @property
    def is_draining(self) -> bool:
        return self._draining


def _build_length(body: bytes) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % len(body)


def build_head(status: int, headers: HeaderLines, *, keep_alive: bool) -> bytes:
    lines = [_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
    for name, value in headers:
        if b"\r" in value or b"\n" in value:
            value = value.replace(b"\r", b" ").replace(b"\n", b" ")
        lines.append(b"%b: %b\r\n" % (name, value))
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


class Exchange:
    """One request and its answer."""

    def __init__(self, server: AsgiServer, request: ArrivingRequest, connection: Peer) -> None:
        assert request.channel is not None
        self._server = server
        self._request = request
        self._connection = connection
        self._channel: BodyChannel = request.channel
        self.gone = asyncio.Event()
        """Set when the peer has disconnected or the answer is complete."""
        self._read_all = False
        self._start: Message | None = None
        self._began = False
        self._ended = False
        self._is_chunked = False
        self._stays = False

    async def run(self, application: AsgiApplication | None) -> None:
        if application is None:
            self._refuse(
                EdgeRefusal(503, "ServiceUnavailable", "the service cannot be loaded", retry_after=_RETRY_SECONDS)
            )
            return
        try:
            scope = self._build_scope()
            if scope is None:
                self._refuse(EdgeRefusal(400, "BadRequest", "the request target must be an absolute path in UTF-8"))
                return
            await application(scope, self._receive, self._send)
        except ConnectionError:
            # The peer is gone, or the application aborts its answer.
            self._connection.abort()
        except Exception:
            log.exception("request failed", extra={"action": "rest.failed"})
            self._refuse(EdgeRefusal(500, "InternalError", "the request failed; the server's log says why"))
        finally:
            if not self._ended:
                # A truncated answer must not look complete.
                self._connection.abort()

    def _refuse(self, refusal: EdgeRefusal) -> None:
        if self._began:
            self._connection.abort()
            return
        self._ended = True
        self.gone.set()
        self._connection.answer(self._server.encode(refusal), keep_alive=False, linger=True)

    def _build_scope(self) -> Message | None:
        request, visitor = self._request, self._connection.visitor
        raw_path, _, query = request.target.partition("?")
        if not raw_path.startswith("/"):
            return None
        try:
            path = unquote(raw_path, errors="strict")
        except UnicodeDecodeError:
            return None
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name in request.headers
            for value in request.values(name)
        ]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": request.version,
            "method": request.method,
            "scheme": "https" if self._server.is_secure else "http",
            "path": path,
            "raw_path": raw_path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": headers,
            "client": (visitor.address, visitor.port),
            "server": self._server.address,
            "state": {},
            "recognise": self._recognise,
        }

    def _recognise(self, user: str, is_privileged: bool) -> None:
        try:
            self._server.gatekeeper.recognise(self._connection.visitor, user, is_privileged=is_privileged)
        except EdgeRefusal:
            self._request.keep_alive = False
            raise

    async def _receive(self) -> Message:
        if not self._read_all and not self._ended:
            got = await self._channel.read()
            if got is not None:
                body, more = got
                self._read_all = not more
                return {"type": "http.request", "body": body, "more_body": more}
            self._read_all = True
            return {"type": "http.disconnect"}
        if not self._channel.is_lost:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._connection.closing or self._ended:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._channel.refusal is not None and not self._began:
            self._refuse(self._channel.refusal)
            return
        assert self._start is not None, "an answer begins with its start"
        body, more = bytes(message.get("body") or b""), bool(message.get("more_body"))
        if not self._began and not more:
            await self._send_whole(self._start, body)
        else:
            await self._send_piece(self._start, body, more)

    @property
    def _keeps_alive(self) -> bool:
        """False if part of the body is unread."""
        return self._request.keep_alive and not self._server.is_draining and self._channel.is_complete

    async def _send_whole(self, start: Message, body: bytes) -> None:
        status, headers = start["status"], list(start.get("headers") or ())
        if status not in _EMPTY and not any(name == b"content-length" for name, _ in headers):
            headers.append(_build_length(body))
        if self._request.method == "HEAD" or status in _EMPTY:
            body = b""
        keep_alive = self._keeps_alive
        head = build_head(status, headers, keep_alive=keep_alive)
        self._began = self._ended = True
        self.gone.set()
        if len(body) <= PIECE_BYTES:
            self._connection.answer(head + body, keep_alive, linger=not self._channel.is_complete)
        else:
            await self._connection.answer_in_pieces(head, (body,), keep_alive)

    async def _send_piece(self, start: Message, body: bytes, more: bool) -> None:
        connection = self._connection
        if not self._began:
            self._began = True
            headers = list(start.get("headers") or ())
            has_length = any(name == b"content-length" for name, _ in headers)
            self._is_chunked = not has_length and self._request.version == "1.1"
            if self._is_chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            self._stays = self._keeps_alive and (has_length or self._is_chunked)
            connection.begin_stream(build_head(start["status"], headers, keep_alive=self._stays))
        if body and self._request.method != "HEAD":
            await connection.send(body, chunked=self._is_chunked)
        if not more:
            self._ended = True
            self.gone.set()
            connection.end_stream(self._stays and self._keeps_alive, chunked=self._is_chunked)
