"""HTTP/1.1 on one connection: asyncio.Protocol around the parser.

Bytes come in, complete requests go to the application one at a time and in order; answers are written in one piece.
What is pipelined waits unparsed, in a bounded buffer, until its turn, and until the reader has taken earlier answers.
The application answers at once or later; no task is made here. A stream (watch, log) is chunked and tells its writer
when to wait.

Invariants: every parsed request gets exactly one answer or the connection is closed; nothing from a connection is
kept beyond the limits, in any phase; a broken request is answered with `Connection: close`, never with silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Generic, Protocol, TypeVar, cast

from trainmaster.edge.bodies import BodyChannel
from trainmaster.edge.gatekeeper import Visitor
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import ArrivingRequest, EdgeRefusal, IncomingRequest, PeerCertificate
from trainmaster.edge.parsing import ParsingStage, RequestParser

log = logging.getLogger(__name__)

# Longer answers are written in pieces of this size, each about 0.5 ms of encryption.
PIECE_BYTES = 512 * 1024

# How long a refused peer may go on sending before the connection is cut.
_LINGER_SECONDS = 5

# And how much it may send meanwhile.
_LINGER_BYTES = 16 * 1024 * 1024

# An upgraded connection from which nothing is read is asked this often whether somebody is there.
_PROBE_SECONDS = 10

# Requests above this many bytes are not kept for comparison with the next one.
_LONGEST_REPEATABLE = 8192

# So much is parsed at a time: a thousand requests that come in one piece are not all made before the first is served.
_SLICE_BYTES = 16 * 1024

R = TypeVar("R", bound=IncomingRequest)


class FramingError(Exception):
    """The bytes of an upgraded connection break its protocol."""


class Phase(Enum):
    OPENED = "opened"
    IDLE = "idle"
    HEADERS = "headers"
    BODY = "body"
    SERVING = "serving"
    STREAMING = "streaming"
    UPGRADED = "upgraded"


class Application(Protocol[R]):
    limits: EdgeLimits
    tick: int
    """Counts seconds; connections compare it with the tick of their last change of phase."""
    reads_while_serving: bool
    """Whether a request is served from its head on, its body read from a channel."""

    def make_request(self, method: str, target: str, headers: dict[str, str], body: bytes, /) -> R: ...

    def opened(self, connection: Connection[R]) -> None: ...

    def closed(self, connection: Connection[R]) -> None: ...

    def admit_body(self, headers: Mapping[str, str], connection: Connection[R]) -> EdgeRefusal | None:
        """Asked before more than a stranger's share of a body is taken: whether it is known who sends it."""
        ...

    def serve(self, request: R, connection: Connection[R]) -> None:
        """Ends in exactly one `connection.answer`, or in `begin_stream` and `end_stream`."""
        ...

    def refuse(self, refusal: EdgeRefusal, connection: Connection[R]) -> None:
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


class Connection(asyncio.Protocol, Generic[R]):
    def __init__(self, application: Application[R], visitor: Visitor | None = None) -> None:
        self._application = application
        self._limits = application.limits
        self._reads_while_serving = application.reads_while_serving
        self.visitor = visitor or Visitor()
        """As the gatekeeper counts it."""
        self._transport: asyncio.Transport | None = None
        self._parser: RequestParser[R]
        """Made when the connection is: most of what floods a port never gets through its handshake."""
        self._ready: deque[R]
        self._behind = bytearray()
        """What came behind the request that is served."""
        self._receiving: BodyChannel | None = None
        """Of the request that is served, until its last byte has arrived."""
        self._head = b""
        self._repeatable: R | None = None
        """The last request that came in one piece, and its head: what begins with the same bytes needs no parsing."""
        self._reading = True
        self._pumping = False
        self._writable: asyncio.Event | None = None
        self._lingering = False
        self._dropped = 0
        self._consumer: Consumer | None = None
        self.busy = False
        self.closing = False
        self.phase = Phase.OPENED
        self.since = application.tick
        self.peer: PeerCertificate | None = None
        self.task: asyncio.Task[None] | None = None
        """Set by the application while a task serves this connection; cancelled when the peer goes away."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport has all of asyncio.Transport's methods and none of its type.
        self._transport = transport = cast(asyncio.Transport, transport)
        # Requests of an application that reads while it serves are `ArrivingRequest`s.
        channel = self._open_channel if self._reads_while_serving else None
        self._parser = RequestParser(self._limits, self._application.make_request, self._admit_body, channel)
        self._ready = self._parser.ready
        transport.set_write_buffer_limits(high=self._limits.stream_buffer_bytes)
        self.peer = transport.get_extra_info("peercert") or None
        self._application.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._ready.clear()
        self._behind.clear()
        if self._writable is not None:
            self._writable.set()
        if self._parser.channel is not None:
            self._parser.channel.fail()
        if self.task is not None:
            self.task.cancel()
        self._application.closed(self)
        # Circles would leave all that a connection holds, its TLS state too, to the collector.
        self._parser.close()
        self.visitor.forget_end()
        self._transport = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self.since = self._application.tick

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
            if not self.busy and not self.closing:
                self._pump()

    def data_received(self, data: bytes) -> None:
        if self.closing:
            self._drop(data)
            return
        if self.busy or self._writable is not None or self._behind:
            self._take_behind(data)
            return
        parser = self._parser
        if parser.stage is ParsingStage.BETWEEN:
            before = self._repeatable
            if before is not None and data.startswith(self._head) and len(data) - len(self._head) == len(before.body):
                self._repeatable = request = before.repeat(data[len(self._head) :])
                self._ready.append(request)
                self._pump()
                return
            self._parse(data)
            if not self._reads_while_serving:
                self._remember(data)
        else:
            self._parse(data)
        self._pump()

    def _drop(self, data: bytes) -> None:
        """Nobody looks at it; whoever goes on for too long is not waiting for an answer."""
        self._dropped += len(data)
        if self._dropped > _LINGER_BYTES:
            self.abort()

    def _take_behind(self, data: bytes) -> None:
        """Something is served, or its answer is not read: what comes now waits, and not much of it."""
        if self._consumer is not None:
            self._consume(data)
            return
        self._behind += data
        if self._receiving is not None:
            self._receive_body()
        if len(self._behind) > self._limits.header_bytes:
            if self.phase is Phase.STREAMING:
                # Nobody has a reason to send anything there, and not reading would hide that the peer has left.
                self.abort()
            else:
                self._pause_reading()

    def _remember(self, data: bytes) -> None:
        """Clients send the same head again and again; parsing is a quarter of what a GET costs.

        Only a head that is the whole of what preceded the body, with nothing behind it, says the same next time.
        """
        if len(self._ready) != 1 or self._parser.stage is not ParsingStage.BETWEEN or self._parser.refusal is not None:
            return
        request = self._ready[0]
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
        parser = self._parser
        if len(data) <= _SLICE_BYTES:
            parser.feed(data)
        else:
            view = memoryview(data)
            parser.feed(view[:_SLICE_BYTES])
            self._behind[:0] = view[_SLICE_BYTES:]
        if parser.beyond is not None:
            # What stands behind a request to upgrade is not HTTP, granted or not.
            parser.beyond += bytes(self._behind)
            self._behind.clear()
            self._pause_reading()

    # Bodies

    def _admit_body(self, headers: Mapping[str, str]) -> EdgeRefusal | None:
        return self._application.admit_body(headers, self)

    def _open_channel(self) -> BodyChannel:
        return BodyChannel(self)

    def invite_body(self) -> None:
        if self._parser.expects_continue and not self.closing and self._transport is not None:
            self._parser.expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _receive_body(self) -> None:
        """Hands on what has come of the body of the request that is served, unless it has enough."""
        channel = self._receiving
        assert channel is not None
        while self._behind and not channel.is_held and not channel.is_complete and not channel.is_lost:
            waiting, self._behind = bytes(self._behind), bytearray()
            self._parse(waiting)
        if channel.is_complete or channel.is_lost:
            self._receiving = None
            if self.phase is Phase.BODY:
                self.phase = Phase.SERVING

    def go_on_with_body(self) -> None:
        if self._receiving is not None and not self.closing:
            self._receive_body()
            if not self._receiving_is_held():
                self.go_on_reading()

    def _receiving_is_held(self) -> bool:
        return self._receiving is not None and self._receiving.is_held

    @property
    def is_receiving(self) -> bool:
        """Whether the request that is served has not arrived whole."""
        return self._receiving is not None

    def fail_body(self, refusal: EdgeRefusal) -> None:
        """The rest of the body that is being read is not taken; its application answers so."""
        if self._receiving is not None:
            self._receiving.fail(refusal)
            self._receiving = None

    # Turn taking

    def _pump(self) -> None:
        """Serves what is complete, in order, as long as answers come at once and are read."""
        if self._pumping:
            return
        self._pumping = True
        parser, ready = self._parser, self._ready
        try:
            while not self.busy and not self.closing and self._writable is None:
                if ready:
                    self.busy = True
                    self.phase = Phase.SERVING
                    request = ready.popleft()
                    request.peer = self.peer
                    request.visitor = self.visitor
                    if self._reads_while_serving:
                        self._begin_receiving(request)
                    self._application.serve(request, self)
                elif parser.refusal is not None:
                    self.busy = True
                    self._application.refuse(parser.refusal, self)
                elif self._behind:
                    waiting, self._behind = bytes(self._behind), bytearray()
                    self._parse(waiting)
                else:
                    break
        finally:
            self._pumping = False
        if self.closing:
            return
        if self.busy or self._writable is not None:
            if ready or parser.refusal is not None or len(self._behind) > self._limits.header_bytes:
                self._pause_reading()
        else:
            if parser.stage is not ParsingStage.BETWEEN:
                self._note_stage(parser.stage)
            if not self._reading:
                self.go_on_reading()

    def _begin_receiving(self, request: R) -> None:
        assert isinstance(request, ArrivingRequest) and request.channel is not None
        if not request.channel.is_complete:
            self._receiving = request.channel
            self._enter(Phase.BODY)

    def _note_stage(self, stage: ParsingStage) -> None:
        """In the middle of a request: its clock runs from when it began."""
        phase = Phase.HEADERS if stage is ParsingStage.HEAD else Phase.BODY
        if self.phase is not phase:
            self._enter(phase)
        if phase is Phase.BODY:
            self.invite_body()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self._application.tick

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def forget_certificate(self) -> None:
        """It has expired: from the next request on the peer has none."""
        self.peer = None
        self._repeatable = None

    # After an upgrade

    def upgrade(self, head: bytes, consumer: Consumer) -> None:
        """From now on the bytes in both directions belong to the consumer."""
        self._enter(Phase.UPGRADED)
        self.write(head)
        self._consumer = consumer
        beyond, self._parser.beyond = self._parser.beyond, None
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

    async def answer_in_pieces(self, head: bytes, parts: Iterable[bytes | bytearray], keep_alive: bool) -> None:
        """A long answer: others get their turn between pieces, and what waits for a slow reader is bounded."""
        with suppress(ConnectionResetError):
            await self._wait_for_reader()
            assert self._transport is not None
            self._transport.write(head)
            for piece in cut_pieces(parts):
                await self._wait_for_reader()
                self._transport.write(piece)
                await asyncio.sleep(0)
        self.task = None
        if self.closing:
            self.busy = False
        elif keep_alive:
            self._finished()
        else:
            self.close()

    def begin_stream(self, head: bytes) -> None:
        if self._receiving is None:
            self._enter(Phase.STREAMING)
        self.write(head)

    async def send(self, payload: bytes, *, chunked: bool = True) -> None:
        """One piece of a stream; waits while the reader is behind by more than the buffer limit."""
        await self._wait_for_reader()
        if chunked:
            self.send_now(payload)
        else:
            self.write(payload)
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

    def end_stream(self, keep_alive: bool, *, chunked: bool = True) -> None:
        if self.closing or self._transport is None:
            return
        if chunked:
            self._transport.write(b"0\r\n\r\n")
        if not keep_alive:
            self.close()
            return
        self._finished()

    def _finished(self) -> None:
        self.busy = False
        self.task = None
        self._receiving = None
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
            if self._receiving_is_held():
                # The application does not read on; that is not the peer's fault.
                self.since = self._application.tick
            return waited > limits.body_seconds
        if self.phase is Phase.OPENED:
            return waited > limits.first_byte_seconds
        return self.phase is Phase.IDLE and self._is_idle_too_long(waited)

    def _is_idle_too_long(self, waited: float) -> bool:
        limits = self._limits
        if waited > limits.idle_seconds or (self.visitor.is_stranger and waited > limits.first_byte_seconds):
            return True
        # An answer that fits into the buffer and is never read.
        unread = self._transport is not None and waited > limits.write_seconds
        return unread and cast(asyncio.Transport, self._transport).get_write_buffer_size() > 0


def cut_pieces(parts: Iterable[bytes | bytearray]) -> Iterator[bytes | memoryview]:
    """Small parts together and large ones in slices, so that each piece has about `PIECE_BYTES`."""
    waiting: list[bytes | bytearray] = []
    size = 0
    for part in parts:
        if len(part) <= PIECE_BYTES // 8:
            waiting.append(part)
            size += len(part)
            if size < PIECE_BYTES:
                continue
        if waiting:
            yield b"".join(waiting)
            waiting, size = [], 0
        if len(part) > PIECE_BYTES // 8:
            rest = memoryview(part)
            while rest:
                yield rest[:PIECE_BYTES]
                rest = rest[PIECE_BYTES:]
    if waiting:
        yield b"".join(waiting)
