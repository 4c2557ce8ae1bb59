"""HTTP/1.1 on one connection: asyncio.Protocol around the httptools parser.

Bytes come in, complete requests go to the application one at a time and in order; answers are written in one piece.
Pipelined requests wait (and reading pauses) until their turn. The application answers at once or later; no task is
made here. A stream (watch, log) is chunked and tells its writer when to wait.

Invariants: every parsed request gets exactly one answer or the connection is closed; nothing from a connection is
kept beyond the limits; a broken request is answered with a Status and `Connection: close`, never with silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol, cast

import httptools

from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.limits import Limits
from trainmaster.apiserver.http.messages import Request
from trainmaster.apiserver.http.streams.websocket import FramingError

log = logging.getLogger(__name__)

# Longer answers are written in pieces of this size, each about 0.5 ms of encryption.
PIECE_BYTES = 512 * 1024

# How long a refused peer may go on sending before the connection is cut.
_LINGER_SECONDS = 5

# An upgraded connection from which nothing is read is asked this often whether somebody is there.
_PROBE_SECONDS = 10

# Requests above this many bytes are not kept for comparison with the next one.
_LONGEST_REPEATABLE = 8192

# Header names as clients spell them to their lower-case form: a client repeats the same few for ever.
_header_names: dict[bytes, str] = {}


def _remember_name(name: bytes) -> str:
    if len(_header_names) >= 500:
        _header_names.clear()
    lowered = _header_names[name] = name.decode("latin-1").lower()
    return lowered


class Phase(Enum):
    IDLE = "idle"
    HEADERS = "headers"
    BODY = "body"
    SERVING = "serving"
    STREAMING = "streaming"
    UPGRADED = "upgraded"


class Application(Protocol):
    limits: Limits
    tick: int
    """Counts seconds; connections compare it with the tick of their last change of phase."""

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def serve(self, request: Request, connection: Connection) -> None:
        """Ends in exactly one `connection.answer`, or in `begin_stream` and `end_stream`."""
        ...

    def refuse(self, error: StatusError, connection: Connection) -> None:
        """Answers a request that could not be read, and closes."""
        ...


class Consumer(Protocol):
    """Takes the bytes of a connection that speaks HTTP no more."""

    def feed(self, data: bytes) -> None:
        """FramingError: the connection is cut."""
        ...

    def probe(self) -> None: ...

    @property
    def is_held(self) -> bool: ...


class Connection(asyncio.Protocol):
    def __init__(self, application: Application) -> None:
        self._application = application
        self._limits = application.limits
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._ready: deque[Request] = deque()
        self._url = b""
        self._headers: dict[str, str] = {}
        self._repeated: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._body_size = 0
        self._head_size = 0
        self._fresh = False
        self._between = True
        """Whether the parser stands between two messages."""
        self._head = b""
        self._repeatable: Request | None = None
        """The last request that came in one piece, and its head: what begins with the same bytes needs no parsing."""
        self._refusal: StatusError | None = None
        self._reading = True
        self._pumping = False
        self._writable: asyncio.Event | None = None
        self._lingering = False
        self._beyond = b""
        """What came behind a request to upgrade."""
        self._consumer: Consumer | None = None
        self.busy = False
        self.closing = False
        self.phase = Phase.IDLE
        self.since = application.tick
        self.peer: Mapping[str, Any] | None = None
        self.task: asyncio.Task[None] | None = None
        """Set by the application while a task serves this connection; cancelled when the peer goes away."""
        self.overload = False
        """Above the connection limit: the first request is answered 429."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport has all of asyncio.Transport's methods and none of its type.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self._limits.stream_buffer_bytes)
        self.peer = transport.get_extra_info("peercert") or None
        self._application.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._ready.clear()
        if self._writable is not None:
            self._writable.set()
        if self.task is not None:
            self.task.cancel()
        self._application.closed(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self.since = self._application.tick

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        if self._consumer is not None:
            self._consume(data)
            return
        if self._between and self._refusal is None:
            before = self._repeatable
            if before is not None and data.startswith(self._head) and len(data) - len(self._head) == len(before.body):
                self._repeatable = request = before.repeat(data[len(self._head) :])
                self._ready.append(request)
                self._pump()
                return
            waiting = len(self._ready)
            self._parse(data)
            self._remember(data, waiting)
        else:
            self._parse(data)
        self._pump()

    def _remember(self, data: bytes, waiting: int) -> None:
        """Clients send the same head again and again; parsing is a quarter of what a GET costs.

        Only a head that is the whole of what preceded the body, with nothing behind it, says the same next time.
        """
        if not self._between or len(self._ready) != waiting + 1 or self._refusal is not None:
            return
        request = self._ready[-1]
        end = len(data) - len(request.body)
        headers = request.headers
        if (
            request.keep_alive
            and data.find(b"\r\n\r\n") == end - 4
            and len(data) <= _LONGEST_REPEATABLE
            and "transfer-encoding" not in headers
            and "expect" not in headers
        ):
            self._head, self._repeatable = data[:end], request

    def _parse(self, data: bytes) -> None:
        self._fresh = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Whether or not it is granted: what follows is not HTTP.
            self._beyond = data[upgrade.args[0] :]
            if self._ready:
                self._ready[-1].keep_alive = False
            self._pause_reading()
        except httptools.HttpParserError as error:
            # A refusal of our own set inside a callback counts first; otherwise the bytes were not HTTP.
            self._refusal = self._refusal or status.bad_request(f"malformed HTTP request: {error}")
        if self.phase is Phase.HEADERS and not self._fresh:
            self._head_size += len(data)
            if self._head_size > self._limits.header_bytes:
                self._refuse(431, "request headers are too large")

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._repeated = []
        self._body = []
        self._body_size = 0
        self._head_size = 0
        self._fresh = True
        self._between = False
        if not self.busy:
            self.phase = Phase.HEADERS
            self.since = self._application.tick

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._limits.url_bytes:
            self._refuse(414, "request URI is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        key = _header_names.get(name) or _remember_name(name)
        text = value.decode("latin-1")
        before = self._headers.get(key)
        if before is None:
            self._headers[key] = text
            return
        if not any(seen == key for seen, _ in self._repeated):
            self._repeated.append((key, before))
        self._repeated.append((key, text))
        self._headers[key] = f"{before}, {text}"

    def on_headers_complete(self) -> None:
        if not self.busy:
            self._enter(Phase.BODY)
        headers = self._headers
        length = headers.get("content-length")
        if length is not None:
            if "transfer-encoding" in headers:
                self._refuse(400, "both Content-Length and Transfer-Encoding are set")
            elif not length.isdigit() or int(length) > self._limits.body_bytes:
                self._refusal = self._refusal or status.too_large(self._limits.body_bytes)
        if "host" not in headers and self._parser.get_http_version() == "1.1":
            self._refuse(400, "missing required Host header")
        if headers.get("expect", "").lower() == "100-continue" and self._refusal is None and not self.busy:
            assert self._transport is not None
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > self._limits.body_bytes:
            self._refusal = self._refusal or status.too_large(self._limits.body_bytes)
            self._body = []
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._between = True
        if self._refusal is not None:
            return
        body = self._body
        request = Request(
            self._parser.get_method().decode("latin-1"),
            self._url.decode("latin-1"),
            self._headers,
            body[0] if len(body) == 1 else b"".join(body),
        )
        request.repeated = self._repeated
        request.keep_alive = self._parser.should_keep_alive()
        request.peer = self.peer
        self._body = []
        self._ready.append(request)

    # Turn taking

    def _pump(self) -> None:
        """Serves what is complete, in order, as long as answers come at once."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._ready and not self.busy and not self.closing:
                self.busy = True
                self.phase = Phase.SERVING
                self._application.serve(self._ready.popleft(), self)
        finally:
            self._pumping = False
        if self.busy:
            if len(self._ready) > 0 or self._refusal is not None:
                self._pause_reading()
        elif self._refusal is not None and not self.closing:
            self.busy = True
            self._application.refuse(self._refusal, self)
        elif not self._reading and not self.closing and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def _refuse(self, code: int, message: str) -> None:
        if self._refusal is None:
            reason = {400: "BadRequest", 414: "RequestURITooLong", 431: "RequestHeaderFieldsTooLarge"}
            self._refusal = StatusError(code, reason.get(code, "BadRequest"), message)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self._application.tick

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    # After an upgrade

    def upgrade(self, head: bytes, consumer: Consumer) -> None:
        """From now on the bytes in both directions belong to the consumer."""
        assert self._transport is not None
        self._enter(Phase.UPGRADED)
        self._transport.write(head)
        self._consumer = consumer
        beyond, self._beyond = self._beyond, b""
        if beyond:
            self._consume(beyond)
        if not consumer.is_held:
            self.go_on_reading()

    def _consume(self, data: bytes) -> None:
        assert self._consumer is not None
        try:
            self._consumer.feed(data)
        except FramingError as error:
            log.info("session cut", extra={"action": "http.session_cut", "error": str(error)})
            self.abort()

    def write(self, data: bytes) -> None:
        if not self.closing and self._transport is not None:
            self._transport.write(data)

    async def wait_until_writable(self) -> None:
        await self._wait_for_reader()

    def hold_reading(self) -> None:
        self._pause_reading()
        self.since = self._application.tick

    def go_on_reading(self) -> None:
        if not self._reading and not self.closing and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def end_session(self) -> None:
        """The consumer has finished; the connection goes too, once what was written has arrived."""
        self.task = None
        self.busy = False
        if not self.closing:
            self.linger()

    def _watch_over(self, consumer: Consumer) -> bool:
        """Whether it is to be cut. A person may look at a page of output for hours: that alone is no reason.

        While nothing is read, that a peer has gone is noticed by writing only.
        """
        assert self._transport is not None
        waited = self._application.tick - self.since
        if self._lingering and self._transport.get_write_buffer_size() == 0:
            return waited > _LINGER_SECONDS
        if waited >= _PROBE_SECONDS or self._lingering:
            self.since = self._application.tick
            if consumer.is_held and self.is_ready():
                consumer.probe()
        return False

    # For the application

    def answer(self, payload: bytes, keep_alive: bool, *, linger: bool = False) -> None:
        """The whole answer of the request being served; `linger` when the peer may still be sending."""
        transport = self._transport
        if self.closing or transport is None:
            self.busy = False
            return
        transport.write(payload)
        if linger:
            self.linger()
        elif keep_alive:
            self._finished()
        else:
            self.close()

    async def answer_in_pieces(self, head: bytes, body: bytes | bytearray, keep_alive: bool) -> None:
        """A long answer: others get their turn between pieces, and what waits for a slow reader is bounded."""
        with suppress(ConnectionResetError):
            await self._wait_for_reader()
            assert self._transport is not None
            self._transport.write(head)
            rest = memoryview(body)
            while rest:
                await self._wait_for_reader()
                self._transport.write(rest[:PIECE_BYTES])
                rest = rest[PIECE_BYTES:]
                await asyncio.sleep(0)
        self.task = None
        if self.closing:
            self.busy = False
        elif keep_alive:
            self._finished()
        else:
            self.close()

    def begin_stream(self, head: bytes) -> None:
        assert self._transport is not None
        self._enter(Phase.STREAMING)
        self._transport.write(head)

    async def send(self, payload: bytes) -> None:
        """One chunk of a stream; waits while the reader is behind by more than the buffer limit."""
        await self._wait_for_reader()
        self.send_now(payload)
        await self._wait_for_reader()

    async def _wait_for_reader(self) -> None:
        while self._writable is not None and not self.closing:
            await self._writable.wait()
        if self.closing:
            raise ConnectionResetError("the peer is gone")

    def is_ready(self) -> bool:
        """Whether `send_now` may be called: somebody is there and keeps up."""
        return self._writable is None and not self.closing

    def send_now(self, payload: bytes) -> None:
        """One chunk of a stream, to a reader who keeps up."""
        assert self._transport is not None
        self._transport.write(b"%x\r\n%b\r\n" % (len(payload), payload))

    def end_stream(self, keep_alive: bool) -> None:
        if self.closing or self._transport is None:
            return
        self._transport.write(b"0\r\n\r\n")
        if not keep_alive:
            self.close()
            return
        self._finished()

    def _finished(self) -> None:
        self.busy = False
        self.task = None
        self._enter(Phase.IDLE)
        if not self._pumping:
            self._pump()

    def linger(self) -> None:
        """Closes once the peer has had time to read: closing with unread input would destroy the answer on its way."""
        self.closing = True
        self._lingering = True
        self.since = self._application.tick
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """After what was written has left."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once: a peer that does not read would hold a polite close for ever."""
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def overdue(self) -> bool:
        """Whether this peer has kept us waiting longer than the limits allow (asked once a second)."""
        limits = self._limits
        if self._consumer is not None:
            return self._watch_over(self._consumer)
        waited = self._application.tick - self.since
        if self._lingering:
            return waited > _LINGER_SECONDS
        if self._writable is not None or self.closing:
            return waited > limits.write_seconds
        if self.phase is Phase.HEADERS:
            return waited > limits.header_seconds
        if self.phase is Phase.BODY:
            return waited > limits.body_seconds
        return self.phase is Phase.IDLE and waited > limits.idle_seconds
