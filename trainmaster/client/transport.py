"""HTTP/1.1 for our own clients: persistent connections, complete answers and streams, with or without TLS.

Used by the command line, the node and the operator. It is an asyncio.Protocol around the httptools parser, because that
loads in milliseconds and needs a fraction of the CPU of general libraries (bench/http_client.py). It knows nothing of
Kubernetes; `client.http` does.

Invariant: a connection carries one exchange at a time and returns to the pool only after a complete answer.

    TransportError
    ├── Unsent        the request did not reach the server; sending it again is safe
    └── Interrupted   the connection broke after the request was sent
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

import httptools

from trainmaster.kit.keepalive import ask_for_signs_of_life

if TYPE_CHECKING:
    from trainmaster.client.carrier import CarrierConnection

_MUCH = 64 * 1024
"""Whoever sends so much at once has more, which is not to pile up in between."""
_STREAM_HIGH = 1024 * 1024
_MAX_RESPONSE = 1024 * 1024 * 1024
Check = Callable[[], None]
"""Raises if the request must not be sent."""
Join = Callable[[], bytes]
"""Builds a request."""
P = TypeVar("P", bound=asyncio.Protocol)


def _let_pass() -> None:
    return None


class TransportError(Exception):
    pass


class Unsent(TransportError):
    pass


class Interrupted(TransportError):
    pass


@dataclass(slots=True)
class HttpAnswer:
    status: int
    headers: dict[str, str]
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: HttpAnswer | None = None
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._complete = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._head_only = False
        self._gather_seconds = 0.0
        self._gathering: asyncio.TimerHandle | None = None
        self.started = False
        """Whether any part of the current answer has arrived."""
        self.lost = False
        self.reusable = True

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport has the methods of asyncio.Transport, but is not an instance of it.
        self._transport = cast(asyncio.Transport, transport)
        ask_for_signs_of_life(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self.started = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Interrupted(f"the server's answer is not HTTP: {error}"))
            self.close()
            return
        if not self._gather_seconds or not self._pieces or self._transport is None:
            return
        if self._gathering is None and len(data) < _MUCH:
            self._transport.pause_reading()
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(self._gather_seconds, self._end_gathering)

    def _end_gathering(self) -> None:
        self._gathering = None
        if self._transport is not None and not self._transport.is_closing() and self._waiting <= _STREAM_HIGH:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._stop_gathering()
        if not self._complete:
            self._fail(Interrupted(str(exc) if exc else "the server closed the connection"))

    def eof_received(self) -> bool:
        return False

    # httptools

    def on_message_begin(self) -> None:
        self._answer = HttpAnswer(0, {})

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._answer is not None
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "replace")
        self._answer.headers[key] = text
        if key == "warning":
            self._answer.warnings.append(text)

    def on_headers_complete(self) -> None:
        assert self._answer is not None
        self._answer.status = self._parser.get_status_code()
        self.reusable = self._parser.should_keep_alive()
        if self._head_only:
            self._wake()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._waiting += len(body)
        if self._head_only:
            if self._waiting > _STREAM_HIGH and self._transport is not None:
                self._transport.pause_reading()
            self._wake()
        elif self._waiting > _MAX_RESPONSE:
            self._fail(Interrupted("the answer is too large"))
            self.close()

    def on_message_complete(self) -> None:
        if self._answer is not None and 100 <= self._answer.status < 200:
            return
        self._complete = True
        self._wake()

    # For the pool

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def gather(self, seconds: float) -> None:
        """After each arrival reading pauses for that long; what arrives meanwhile is then read at once, which takes a
        fraction of the CPU time. For an answer that is read while it arrives."""
        self._gather_seconds = seconds

    def _stop_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    def send(self, payload: bytes, *, stream: bool) -> None:
        if self.lost or self._transport is None or self._transport.is_closing():
            raise Unsent("the connection is closed")
        self._answer, self._complete, self.started, self._error = None, False, False, None
        self._pieces.clear()
        self._waiting = 0
        self._head_only = stream
        self._transport.write(payload)

    async def read(self) -> HttpAnswer:
        """The complete answer."""
        while not self._complete:
            if self._error is not None:
                raise self._error
            await self._wait()
        assert self._answer is not None
        self._answer.body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return self._answer

    async def read_head(self) -> HttpAnswer:
        while self._answer is None or self._answer.status < 200:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._answer

    async def read_piece(self) -> bytes:
        """What has arrived since the last call; b"" at the end."""
        while not self._pieces:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        was_full, self._waiting = self._waiting > _STREAM_HIGH, 0
        if was_full and self._gathering is None and self._transport is not None and not self.lost:
            self._transport.resume_reading()
        return piece

    @property
    def complete(self) -> bool:
        return self._complete

    @property
    def is_spent(self) -> bool:
        """Whether the complete answer has been read; reading may be paused before."""
        return self._complete and not self._pieces

    def close(self) -> None:
        self.reusable = False
        self._stop_gathering()
        if self._transport is not None:
            self._transport.abort()


class Stream:
    """An answer that is read while it arrives. Must be closed."""

    def __init__(self, connection: _Connection, answer: HttpAnswer, release: Callable[[_Connection], None]) -> None:
        self._connection = connection
        self._release: Callable[[_Connection], None] | None = release
        self.answer = answer

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self._connection.read_piece():
            yield piece

    async def read_piece(self) -> bytes:
        return await self._connection.read_piece()

    async def read_all(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release(self._connection)


class Transport:
    """Connections to one server. At most `most` exchanges at a time; streams are not counted."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        connect_seconds: float = 10.0,
        most: int = 32,
        join: Join | None = None,
    ) -> None:
        """`join` builds the request for a connection that carries all others, which a server of ours has."""
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http(s) address: {server!r}")
        self.server = server.rstrip("/")
        self.prefix = parts.path.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.host_header = f"{host}:{self._port}"
        self._tls = tls if parts.scheme == "https" else None
        self._server_name = server_name or self._host
        self._connect_seconds = connect_seconds
        self._join = join
        self._joining = asyncio.Lock()
        self._carrier: CarrierConnection | None = None
        self._idle: list[_Connection] = []
        self._closed = False
        self._slots = asyncio.Semaphore(most)

    async def _connect(self) -> _Connection:
        carrier = None if self._join is None else await self._get_carrier(self._join)
        if carrier is None:
            return await self._dial(_Connection)
        connection = _Connection()
        carrier.open(connection)
        return connection

    async def _get_carrier(self, join: Join) -> CarrierConnection | None:
        """None if the server has none, or none now."""
        # Imported here because most commands need one connection only.
        from trainmaster.client.carrier import CarrierConnection  # noqa: PLC0415

        async with self._joining:
            carrier = self._carrier
            if carrier is None or carrier.lost:
                carrier = await self._dial(CarrierConnection, lambda made: made.join(join()))
                if carrier.code != 101:
                    carrier.close()
                    if 400 <= carrier.code < 500 and carrier.code not in (401, 429):
                        self._join = None
                    return None
                self._carrier = carrier
        return carrier if carrier.can_open else None

    async def _dial(self, make: Callable[[], P], greet: Callable[[P], Awaitable[None]] | None = None) -> P:
        """A new connection, after `greet`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                transport, connection = await loop.create_connection(
                    make,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls else None,
                )
                if greet is not None:
                    try:
                        await greet(connection)
                    except BaseException:
                        transport.abort()
                        raise
        except TimeoutError:
            raise Unsent(f"no connection to {self.server} within {self._connect_seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise Unsent(f"the certificate of {self.server} is not trusted: {error.verify_message}") from error
        except (OSError, ssl.SSLError) as error:
            raise Unsent(f"cannot connect to {self.server}: {error}") from error
        return connection

    def _find_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                return connection
        return None

    async def exchange(self, payload: bytes, *, repeatable: bool, check: Check = _let_pass) -> HttpAnswer:
        """Sends a request and returns the complete answer. A `repeatable` one is sent again if a persistent connection
        turns out to be dead; others only if nothing was sent. `check` is called right before anything is sent, after
        all waiting."""
        async with self._slots:
            connection = self._find_idle()
            while connection is not None:
                try:
                    return await self._exchange_on(connection, payload, check)
                except Unsent:
                    connection = self._find_idle()
                except Interrupted:
                    if not repeatable or connection.started:
                        raise
                    connection = self._find_idle()
            return await self._exchange_on(await self._connect(), payload, check)

    async def _exchange_on(self, connection: _Connection, payload: bytes, check: Check) -> HttpAnswer:
        try:
            check()
            connection.send(payload, stream=False)
            answer = await connection.read()
        except BaseException:
            connection.close()
            raise
        if connection.reusable and not connection.lost:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    async def open_stream(self, payload: bytes, *, gather_seconds: float = 0.0) -> Stream:
        """For requests that may be sent again. An idle connection is used if there is one, because a TLS handshake
        takes more CPU time than a request."""
        connection = self._find_idle()
        while connection is not None:
            try:
                return await self._open_stream_on(connection, payload, gather_seconds)
            except (Unsent, Interrupted):
                if connection.started:
                    raise
                connection = self._find_idle()
        return await self._open_stream_on(await self._connect(), payload, gather_seconds)

    async def _open_stream_on(self, connection: _Connection, payload: bytes, gather_seconds: float) -> Stream:
        connection.gather(gather_seconds)
        try:
            connection.send(payload, stream=True)
            return Stream(connection, await connection.read_head(), self._take_back)
        except BaseException:
            connection.close()
            raise

    def _take_back(self, connection: _Connection) -> None:
        """After a stream: a complete answer leaves a connection that can be used again."""
        if connection.is_spent and connection.reusable and not connection.lost and not self._closed:
            connection.gather(0.0)
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self._closed = True
        if self._carrier is not None:
            self._carrier.close()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
