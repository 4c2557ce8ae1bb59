"""Many connections in one: after an upgrade, a connection carries others, each a transport for an ordinary protocol.

Both ends use this module: the API server, which serves carried connections like all others, and our own HTTP client. So
a command that follows many things has one TCP connection and one TLS handshake.

A frame is a kind, the number of a carried connection and a count (1, 4 and 4 bytes, big-endian):

    OPEN   by the client: a new connection, with a number that was not used before
    DATA   count bytes follow
    GRANT  count more bytes may be sent
    CLOSE  the connection has ended, in both directions

Invariants: a side has sent at most `WINDOW` bytes of a connection that the other side has not consumed, so one that is
not read neither stops the others nor fills the memory. A carrier that does not keep up gets no more data.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from trainmaster.edge.refusals import FramingError

PATH = "/trainmaster/connections"
PROTOCOL = "trainmaster-connections"
"""The name of the protocol in the header Upgrade."""
MOST = 1024
"""Carried connections of one carrier."""
WINDOW = 256 * 1024
_LARGEST = 64 * 1024
"""The data of one frame."""
_HIGH = 64 * 1024
_HEAD = struct.Struct(">BII")
OPEN, DATA, GRANT, CLOSE = range(1, 5)

Accept = Callable[["CarriedTransport"], asyncio.Protocol | None]
"""The protocol of a connection that the peer opens; None to refuse it."""


def _accept_none(transport: CarriedTransport) -> None:
    return None


def _nothing() -> None:
    return None


class Carrier(Protocol):
    def write(self, data: bytes) -> None: ...

    def is_ready(self) -> bool:
        """Whether the peer is connected and keeps up."""
        ...


class Multiplexer:
    """One end of a carrier. `note` is called when `flush` is needed once the carrier is ready again, and when no
    connection is left."""

    def __init__(
        self,
        carrier: Carrier,
        *,
        accept: Accept = _accept_none,
        extra: Callable[[], Mapping[str, object]] = dict,
        note: Callable[[], None] = _nothing,
    ) -> None:
        self._carrier = carrier
        self._accept = accept
        self._extra = extra
        self._note = note
        self._carried: dict[int, CarriedTransport] = {}
        self._held: dict[CarriedTransport, None] = {}
        """Those with data that the carrier was not ready for, in order."""
        self._last = 0
        self._received = bytearray()
        self._is_lost = False

    def __len__(self) -> int:
        return len(self._carried)

    def open(self, protocol: asyncio.Protocol) -> None:
        """Connects the protocol with the peer."""
        transport = self._add(self._last + 1)
        self.send(OPEN, transport.number)
        transport.connect(protocol)

    def feed(self, data: bytes) -> None:
        """Bytes from the peer. Raises FramingError if they break the protocol."""
        received = self._received
        received += data
        start = 0
        while len(received) - start >= _HEAD.size and not self._is_lost:
            kind, number, count = _HEAD.unpack_from(received, start)
            end = start + _HEAD.size
            if kind == DATA:
                if count > _LARGEST:
                    raise FramingError(f"a frame of {count} bytes")
                if len(received) - end < count:
                    break
                end += count
            self._take(kind, number, count, bytes(received[end - count : end]) if kind == DATA else b"")
            start = end
        del received[:start]

    def flush(self) -> None:
        held, self._held = self._held, {}
        for transport in held:
            transport.flush()

    def lose(self, error: Exception | None) -> None:
        """The carrier has gone."""
        self._is_lost = True
        self._held.clear()
        for transport in tuple(self._carried.values()):
            transport.take_close(error)

    # For transports

    def is_ready(self) -> bool:
        return not self._is_lost and self._carrier.is_ready()

    def hold(self, transport: CarriedTransport) -> None:
        if not self._is_lost:
            self._held[transport] = None
            self._note()

    def send(self, kind: int, number: int, count: int = 0, data: bytes | memoryview = b"") -> None:
        if not self._is_lost:
            self._carrier.write(b"".join((_HEAD.pack(kind, number, count), data)))

    def forget(self, transport: CarriedTransport) -> None:
        self._held.pop(transport, None)
        if self._carried.pop(transport.number, None) is not None and not self._carried:
            self._note()

    def _add(self, number: int) -> CarriedTransport:
        self._last = number
        transport = self._carried[number] = CarriedTransport(self, number, self._extra())
        return transport

    def _take(self, kind: int, number: int, count: int, data: bytes) -> None:
        if kind == OPEN:
            self._take_open(number)
            return
        if kind not in (DATA, GRANT, CLOSE):
            raise FramingError(f"a frame of the unknown kind {kind}")
        transport = self._carried.get(number)
        if transport is None:
            return  # closed here, which the peer did not know yet
        if kind == DATA:
            transport.take(data)
        elif kind == GRANT:
            transport.take_grant(count)
        else:
            transport.take_close(None)

    def _take_open(self, number: int) -> None:
        if self._accept is _accept_none or number <= self._last:
            raise FramingError(f"connection {number} cannot be opened")
        transport = self._add(number)
        protocol = self._accept(transport) if len(self._carried) <= MOST else None
        if protocol is None:
            self.forget(transport)
            self.send(CLOSE, number)
        else:
            transport.connect(protocol)


class CarriedTransport(asyncio.Transport):
    """A connection inside another one."""

    def __init__(self, multiplexer: Multiplexer, number: int, extra: Mapping[str, object]) -> None:
        super().__init__(dict(extra))
        self.number = number
        self._multiplexer = multiplexer
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol | None = None
        self._high = _HIGH
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_size = 0
        self._may_send = WINDOW
        self._has_paused_protocol = False
        self._arrived: deque[bytes] = deque()
        self._may_receive = WINDOW
        self._consumed = 0
        """Received and consumed, and not granted again yet."""
        self._is_reading = True
        self._closing = False
        self._peer_closed = False
        self._error: Exception | None = None

    def connect(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    # asyncio.Transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._closing

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._peer_closed or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_size += len(data)
        self.flush()
        if self._unsent_size > self._high and not self._has_paused_protocol and self._protocol is not None:
            self._has_paused_protocol = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """After everything written has been sent."""
        if not self._closing:
            self._closing = True
            self.flush()

    def abort(self) -> None:
        self._unsent.clear()
        self._unsent_size = 0
        if not self._closing:
            self.close()
        elif not self._peer_closed:
            self._end()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._arrived:
            self._loop.call_soon(self._deliver)

    # For the multiplexer

    def flush(self) -> None:
        unsent, multiplexer = self._unsent, self._multiplexer
        while unsent and self._may_send:
            if not multiplexer.is_ready():
                multiplexer.hold(self)
                return
            size = min(len(unsent[0]), self._may_send, _LARGEST)
            piece: bytes | memoryview = unsent.popleft()
            if size < len(piece):
                whole = memoryview(piece)
                unsent.appendleft(whole[size:])
                piece = whole[:size]
            self._may_send -= size
            self._unsent_size -= size
            multiplexer.send(DATA, self.number, size, piece)
        if self._has_paused_protocol and self._unsent_size <= self._high // 4 and self._protocol is not None:
            self._has_paused_protocol = False
            self._protocol.resume_writing()
        if self._closing and not unsent:
            self._end()

    def take(self, data: bytes) -> None:
        self._may_receive -= len(data)
        if self._may_receive < 0:
            raise FramingError(f"connection {self.number} got more than was granted")
        if self._closing:
            return
        if self._is_reading and not self._arrived:
            self._hand_on(data)
        else:
            self._arrived.append(data)

    def take_grant(self, count: int) -> None:
        self._may_send += count
        if self._may_send > WINDOW:
            raise FramingError(f"connection {self.number} was granted more than was taken")
        self.flush()

    def take_close(self, error: Exception | None) -> None:
        """What has arrived before is still delivered."""
        self._peer_closed = True
        self._error = error
        self._unsent.clear()
        self._unsent_size = 0
        self._multiplexer.forget(self)
        if self._closing or not self._arrived:
            self._loop.call_soon(self._lose)

    def _hand_on(self, data: bytes) -> None:
        assert self._protocol is not None
        self._protocol.data_received(data)
        self._consumed += len(data)
        if self._consumed >= WINDOW // 2 and not self._closing and not self._peer_closed:
            self._multiplexer.send(GRANT, self.number, self._consumed)
            self._may_receive += self._consumed
            self._consumed = 0

    def _deliver(self) -> None:
        while self._arrived and self._is_reading and not self._closing:
            self._hand_on(self._arrived.popleft())
        if self._peer_closed and not self._arrived:
            self._lose()

    def _end(self) -> None:
        """Our side has ended."""
        if not self._peer_closed:
            self._peer_closed = True
            self._multiplexer.send(CLOSE, self.number)
            self._multiplexer.forget(self)
        self._loop.call_soon(self._lose)

    def _lose(self) -> None:
        self._closing = True
        self._arrived.clear()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(self._error)
