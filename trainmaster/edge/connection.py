"""One HTTP/1.1 connection: an asyncio.Protocol around the parser.

Complete requests are passed to the application one at a time and in order; answers are written in one piece. Pipelined
data waits unparsed in a bounded buffer until the previous answer has been sent. The application answers immediately or
later; no task is created here. A stream (watch, log) is chunked and applies backpressure to its writer.

Invariants: every parsed request gets exactly one answer or the connection is closed; no data beyond the limits is kept
in any phase; a malformed request is answered with `Connection: close`, never with silence.
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
from trainmaster.edge.messages import ArrivingRequest, IncomingRequest, PeerCertificate
from trainmaster.edge.parsing import ParsingStage, RequestParser
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.refusals import FramingError as FramingError

log = logging.getLogger(__name__)

# Longer answers are written in pieces of this size; encrypting one takes about 0.5 ms.
PIECE_BYTES = 512 * 1024

# How long a refused peer may go on sending before the connection is cut.
_LINGER_SECONDS = 5

# How much it may send meanwhile.
_LINGER_BYTES = 16 * 1024 * 1024

# How often an upgraded connection that is not being read is probed for a dead peer.
_PROBE_SECONDS = 10

# Larger requests are not kept for comparison with the next one.
_LONGEST_REPEATABLE = 8192

# How much is parsed at a time, so that a thousand requests in one packet are not all parsed before the first is served.
_SLICE_BYTES = 16 * 1024

R = TypeVar("R", bound=IncomingRequest)


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
    """A counter of seconds; connections compare it with its value at their last change of phase."""
    reads_while_serving: bool
    """Whether requests are served once their head has arrived, with the body read from a channel."""

    def make_request(self, method: str, target: str, headers: dict[str, str], body: bytes, /) -> R: ...

    def opened(self, connection: Connection[R]) -> None: ...

    def closed(self, connection: Connection[R]) -> None: ...

    def admit_body(self, headers: Mapping[str, str], connection: Connection[R]) -> EdgeRefusal | None:
        """Called before accepting more of a body than an unauthenticated client may send."""
        ...

    def serve(self, request: R, connection: Connection[R]) -> None:
        """Must end in exactly one `connection.answer`, or in `begin_stream` and `end_stream`."""
        ...

    def refuse(self, refusal: EdgeRefusal, connection: Connection[R]) -> None:
        """Answers a request that could not be parsed, and closes the connection."""
        ...


class Consumer(Protocol):
    """Receives the bytes of a connection after an upgrade."""

    def feed(self, data: bytes) -> None:
        """Raises FramingError to close the connection."""
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
        """The gatekeeper's record of this connection."""
        self._transport: asyncio.Transport | None = None
        self._parser: RequestParser[R]
        """Created with the connection's transport, because most connections of a flood never complete the handshake."""
        self._ready: deque[R]
        self._pipelined = bytearray()
        """Data received after the request that is being served."""
        self._receiving: BodyChannel | None = None
        """The body of the request being served, until its last byte has arrived."""
        self._head = b""
        self._repeatable: R | None = None
        """The last request that arrived in one piece, with its head: a request with the same head need not be parsed
        again."""
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
        # uvloop's TLS transport has the methods of asyncio.Transport, but is not an instance of it.
        self._transport = transport = cast(asyncio.Transport, transport)
        # Applications that read while serving use `ArrivingRequest`s.
        channel = self._open_channel if self._reads_while_serving else None
        self._parser = RequestParser(self._limits, self._application.make_request, self._admit_body, channel)
        self._ready = self._parser.ready
        transport.set_write_buffer_limits(high=self._limits.stream_buffer_bytes)
        self.peer = transport.get_extra_info("peercert") or None
        self._application.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._ready.clear()
        self._pipelined.clear()
        if self._writable is not None:
            self._writable.set()
        if self._parser.channel is not None:
            self._parser.channel.fail()
        if self.task is not None:
            self.task.cancel()
        self._application.closed(self)
        # Breaks reference cycles, which would keep everything that the connection holds, such as TLS state, until a
        # collection.
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
        if self.busy or self._writable is not None or self._pipelined:
            self._buffer_pipelined(data)
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
        """Discards input, and aborts if there is too much of it."""
        self._dropped += len(data)
        if self._dropped > _LINGER_BYTES:
            self.abort()

    def _buffer_pipelined(self, data: bytes) -> None:
        """Buffers a bounded amount of data that arrives while a request is served or its answer is unread."""
        if self._consumer is not None:
            self._consume(data)
            return
        self._pipelined += data
        if self._receiving is not None:
            self._receive_body()
        if len(self._pipelined) > self._limits.header_bytes:
            if self.phase is Phase.STREAMING:
                # No data is expected here, and to stop reading would hide that the peer has disconnected.
                self.abort()
            else:
                self._pause_reading()

    def _remember(self, data: bytes) -> None:
        """Remembers the head, because clients repeat theirs and parsing is a quarter of the cost of a GET.

        Only a head that was everything before the body, with nothing after it, can be reused.
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
            self._pipelined[:0] = view[_SLICE_BYTES:]
        if parser.after_upgrade is not None:
            # What follows an upgrade request is not HTTP, whether or not the upgrade is granted.
            parser.after_upgrade += bytes(self._pipelined)
            self._pipelined.clear()
            self._pause_reading()

    # Bodies

    def _admit_body(self, headers: Mapping[str, str]) -> EdgeRefusal | None:
        return self._application.admit_body(headers, self)

    def _open_channel(self) -> BodyChannel:
        return BodyChannel(self)

    def send_continue(self) -> None:
        if self._parser.expects_continue and not self.closing and self._transport is not None:
            self._parser.expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _receive_body(self) -> None:
        """Passes on the part of the body that has arrived, unless the application has enough."""
        channel = self._receiving
        assert channel is not None
        while self._pipelined and not channel.is_held and not channel.is_complete and not channel.is_lost:
            waiting, self._pipelined = bytes(self._pipelined), bytearray()
            self._parse(waiting)
        if channel.is_complete or channel.is_lost:
            self._receiving = None
            if self.phase is Phase.BODY:
                self.phase = Phase.SERVING

    def resume_body(self) -> None:
        if self._receiving is not None and not self.closing:
            self._receive_body()
            if not self._receiving_is_held():
                self.resume_reading()

    def _receiving_is_held(self) -> bool:
        return self._receiving is not None and self._receiving.is_held

    @property
    def is_receiving(self) -> bool:
        """Whether the body of the request being served is still incomplete."""
        return self._receiving is not None

    def fail_body(self, refusal: EdgeRefusal) -> None:
        """Refuses the rest of the body; the application sends the answer."""
        if self._receiving is not None:
            self._receiving.fail(refusal)
            self._receiving = None

    # Turn taking

    def _pump(self) -> None:
        """Serves complete requests in order, as long as answers are immediate and are read."""
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
                elif self._pipelined:
                    waiting, self._pipelined = bytes(self._pipelined), bytearray()
                    self._parse(waiting)
                else:
                    break
        finally:
            self._pumping = False
        if self.closing:
            return
        if self.busy or self._writable is not None:
            if ready or parser.refusal is not None or len(self._pipelined) > self._limits.header_bytes:
                self._pause_reading()
        else:
            if parser.stage is not ParsingStage.BETWEEN:
                self._note_stage(parser.stage)
            if not self._reading:
                self.resume_reading()

    def _begin_receiving(self, request: R) -> None:
        assert isinstance(request, ArrivingRequest) and request.channel is not None
        if not request.channel.is_complete:
            self._receiving = request.channel
            self._enter(Phase.BODY)

    def _note_stage(self, stage: ParsingStage) -> None:
        """Starts the time limit of a request that has begun to arrive."""
        phase = Phase.HEADERS if stage is ParsingStage.HEAD else Phase.BODY
        if self.phase is not phase:
            self._enter(phase)
        if phase is Phase.BODY:
            self.send_continue()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self._application.tick

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def forget_certificate(self) -> None:
        """Drops an expired client certificate, from the next request on."""
        self.peer = None
        self._repeatable = None

    # After an upgrade

    @property
    def is_carried(self) -> bool:
        """Whether it is inside another connection (`edge.multiplexing`)."""
        return self._transport is not None and bool(self._transport.get_extra_info("carried"))

    def upgrade(self, head: bytes, consumer: Consumer) -> None:
        """Hands the connection over to the consumer, in both directions."""
        self._enter(Phase.UPGRADED)
        self.write(head)
        self._consumer = consumer
        after_upgrade, self._parser.after_upgrade = self._parser.after_upgrade, None
        if after_upgrade:
            self._consume(after_upgrade)
        if not consumer.is_held:
            self.resume_reading()

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

    def resume_reading(self) -> None:
        if not self._reading and not self.closing and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def end_session(self) -> None:
        """Closes the connection after the consumer has finished and everything written has been sent."""
        self.task = None
        self.busy = False
        if not self.closing:
            self.linger()

    def _is_stalled(self, consumer: Consumer) -> bool:
        """Whether to close the connection. A slow reader alone is no reason: a person may look at a page of output for
        hours.

        While nothing is read, only writing reveals that the peer has gone.
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
        """Sends a complete answer. `linger` if the peer may still be sending."""
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
        """Sends a long answer: yields between pieces, and buffers a bounded amount for a slow reader."""
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
        """Sends a piece of a stream; waits while more than the buffer limit is unsent."""
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
        """Whether `send_now` may be called: the peer is connected and keeps up."""
        return self._writable is None and not self.closing

    def send_now(self, payload: bytes) -> None:
        """Sends one chunk without waiting; see `is_ready`."""
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
        """Closes after the peer has had time to read. Closing with unread input would discard the answer."""
        self.closing = True
        self._lingering = True
        self.since = self._application.tick
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """Closes after everything written has been sent."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes immediately; a peer that does not read would delay `close` forever."""
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def is_overdue(self) -> bool:
        """Whether the peer has exceeded a time limit (checked once a second)."""
        limits = self._limits
        if self._consumer is not None:
            return self._is_stalled(self._consumer)
        waited = self._application.tick - self.since
        if self._lingering:
            return waited > _LINGER_SECONDS
        if self._writable is not None or self.closing:
            return waited > limits.write_seconds
        if self.phase is Phase.HEADERS:
            return waited > limits.header_seconds
        if self.phase is Phase.BODY:
            if self._receiving_is_held():
                # Waiting for the application, not for the peer.
                self.since = self._application.tick
            return waited > limits.body_seconds
        if self.phase is Phase.OPENED:
            return waited > limits.first_byte_seconds
        return self.phase is Phase.IDLE and self._is_idle_too_long(waited)

    def _is_idle_too_long(self, waited: float) -> bool:
        limits = self._limits
        if waited > limits.idle_seconds or (self.visitor.is_stranger and waited > limits.first_byte_seconds):
            return True
        # An answer that fits into the buffer but is never read.
        unread = self._transport is not None and waited > limits.write_seconds
        return unread and cast(asyncio.Transport, self._transport).get_write_buffer_size() > 0


def cut_pieces(parts: Iterable[bytes | bytearray]) -> Iterator[bytes | memoryview]:
    """Joins small parts and slices large ones into pieces of about `PIECE_BYTES`."""
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
