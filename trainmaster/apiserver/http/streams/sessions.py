"""Channels of bytes in an upgraded connection: numbered channels in WebSocket messages, or SPDY streams.

A session is fed by the connection and provides `Channel`s. SPDY runs on the bare connection or inside a WebSocket.

Backpressure works in both directions: writing waits for the client, and while more than `HIGH` bytes wait to be read by
the Pod nothing is read from the client. So a session buffers about `HIGH` bytes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.streams import spdy, websocket
from trainmaster.apiserver.http.streams.contract import Wire
from trainmaster.edge.connection import FramingError

HIGH = 256 * 1024
LOW = 64 * 1024
MOST_STREAMS = 256
"""Concurrent SPDY streams; port-forward needs two per connection."""
_CLOSE_CHANNEL = 255


class Channel:
    """One stream of a session; each side can close its direction."""

    def __init__(self, session: StreamSession, number: int, headers: Mapping[str, str] | None = None) -> None:
        self.number = number
        self.headers = headers or {}
        self._session = session
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._broken = False
        self._arrived = asyncio.Event()
        self.writable = True

    async def read(self) -> bytes:
        """The data that has arrived; b"" when the peer closed its direction. Raises ConnectionResetError if it reset
        the channel."""
        while not self._pieces:
            if self._broken:
                raise ConnectionResetError("the client closed the stream")
            if self._ended:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        self._pieces.clear()
        self._session.note_taken(len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Waits while the client is behind."""
        if not self.writable:
            raise ConnectionResetError("the client closed the stream")
        await self._session.send(self, data)

    def end(self) -> None:
        """Closes our direction."""
        if self.writable:
            self.writable = False
            self._session.send_end(self)

    # From the session

    def take(self, data: bytes) -> None:
        if data and not self._ended:
            self._pieces.append(data)
            self._session.note_queued(len(data))
            self._arrived.set()

    def take_end(self) -> None:
        self._ended = True
        self._arrived.set()

    def take_reset(self) -> None:
        dropped = sum(map(len, self._pieces))
        self._pieces.clear()
        self._ended = self._broken = True
        self.writable = False
        self._session.note_taken(dropped)
        self._arrived.set()

    @property
    def is_over(self) -> bool:
        return self._ended and not self._pieces and not self.writable


class StreamSession(ABC):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queued = 0
        self._held = False
        self.ended = False
        self.verdict: StatusError | None = None
        """Why the client may not continue; set before the serving task is cancelled."""

    @property
    def has_lost_peer(self) -> bool:
        """The connection is gone, and it was not this server that ended it."""
        return self._wire.closing

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Bytes from the client. Raises FramingError to disconnect it."""

    @abstractmethod
    def close(self, code: int = websocket.NORMAL, reason: str = "") -> None:
        """Closes the session after everything written before has been sent."""

    @abstractmethod
    def probe(self) -> None:
        """Sends something that needs no answer, to notice a disconnected peer while nothing is read."""

    async def send(self, channel: Channel, data: bytes) -> None:
        await self._wire.wait_until_writable()
        if not self.ended:
            self._wire.write(self._build(channel, data))
        await self._wire.wait_until_writable()

    def send_last(self, channel: Channel, data: bytes) -> None:
        """Sends without waiting, before closing."""
        if not self.ended and channel.writable:
            self._wire.write(self._build(channel, data))

    @abstractmethod
    def _build(self, channel: Channel, data: bytes) -> bytes: ...

    @abstractmethod
    def send_end(self, channel: Channel) -> None: ...

    def note_queued(self, size: int) -> None:
        self._queued += size
        if self._queued > HIGH and not self._held:
            self._held = True
            self._wire.hold_reading()

    def note_taken(self, size: int) -> None:
        self._queued -= size
        if self._held and self._queued <= LOW:
            self._held = False
            self._wire.resume_reading()

    @property
    def is_held(self) -> bool:
        return self._held


class WebSocketEnd:
    """Our end of a WebSocket: answers pings, and passes on pieces of messages."""

    def __init__(self, wire: Wire, on_piece: Callable[[bytes, bool], None], on_close: Callable[[], None]) -> None:
        self._wire = wire
        self._reader = websocket.FrameReader()
        self._on_piece = on_piece
        self._on_close = on_close
        self._closed = False

    def feed(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            if isinstance(event, websocket.Piece):
                self._on_piece(event.data, event.first)
            elif isinstance(event, websocket.WebSocketPing):
                self._wire.write(websocket.build_pong(event.data))
            else:
                self.close(websocket.NORMAL)
                self._on_close()
                return

    def close(self, code: int, reason: str = "") -> None:
        if not self._closed:
            self._closed = True
            self._wire.write(websocket.build_close(code, reason))
            self._wire.linger()


class NumberedChannels(StreamSession):
    """The first byte of every message is the number of its channel (`v4.channel.k8s.io`, `v5.channel.k8s.io`)."""

    def __init__(self, wire: Wire, numbers: Iterable[int], *, can_half_close: bool) -> None:
        super().__init__(wire)
        self.channels = {number: Channel(self, number) for number in numbers}
        self._can_half_close = can_half_close
        self._socket = WebSocketEnd(wire, self._take, self._end_all)
        self._current = -1
        """Channel of the current message; -1 before its first byte."""

    def feed(self, data: bytes) -> None:
        self._socket.feed(data)

    def _take(self, data: bytes, first: bool) -> None:
        if first:
            self._current = -1
        if not data:
            return
        if self._current < 0:
            self._current, data = data[0], data[1:]
        if self._current == _CLOSE_CHANNEL and self._can_half_close:
            for number in data:
                if number in self.channels:
                    self.channels[number].take_end()
        elif self._current in self.channels:
            self.channels[self._current].take(data)

    def _end_all(self) -> None:
        self.ended = True
        for channel in self.channels.values():
            channel.take_reset()

    def send_end(self, channel: Channel) -> None:
        """In this protocol only the client can close a channel; ours end with the session."""

    def _build(self, channel: Channel, data: bytes) -> bytes:
        return websocket.build_head(len(data) + 1) + bytes((channel.number,)) + data

    def close(self, code: int = websocket.NORMAL, reason: str = "") -> None:
        self.ended = True
        self._socket.close(code, reason)

    def probe(self) -> None:
        self._wire.write(websocket.build_ping())


class SpdyStreams(StreamSession):
    """Streams that the client opens, each with headers; `wait_for_stream` returns them in order."""

    def __init__(self, wire: Wire, *, in_websocket: bool = False) -> None:
        super().__init__(wire)
        self._streams: dict[int, Channel] = {}
        self._last = 0
        self._fresh: deque[Channel] = deque()
        self._opened = asyncio.Event()
        self._reader = spdy.SpdyReader()
        self._writer = spdy.SpdyWriter()
        self._socket = WebSocketEnd(wire, lambda data, _: self._take(data), self._end_all) if in_websocket else None

    def feed(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.feed(data)
        else:
            self._take(data)

    async def wait_for_stream(self) -> Channel | None:
        """The next stream; None if the client opens no more."""
        while not self._fresh:
            if self.ended:
                return None
            self._opened.clear()
            await self._opened.wait()
        return self._fresh.popleft()

    def _take(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            if isinstance(event, spdy.Data):
                channel = self._streams.get(event.stream)
                if channel is not None:
                    channel.take(event.data)
                    if event.final:
                        channel.take_end()
                        self._forget(channel)
            elif isinstance(event, spdy.Opened):
                self._open(event)
            elif isinstance(event, spdy.Reset):
                channel = self._streams.pop(event.stream, None)
                if channel is not None:
                    channel.take_reset()
            elif isinstance(event, spdy.SpdyPing):
                self._write(self._writer.build_ping(event.data))
            else:
                self._end_all()

    def _open(self, event: spdy.Opened) -> None:
        if event.stream <= self._last or event.stream % 2 == 0:
            raise FramingError("a stream number is used twice or is not the client's")
        self._last = event.stream
        self._forget_all()
        if len(self._streams) >= MOST_STREAMS:
            self._write(self._writer.build_reset(event.stream))
            return
        channel = self._streams[event.stream] = Channel(self, event.stream, event.headers)
        if event.final:
            channel.take_end()
        self._write(self._writer.build_reply(event.stream))
        self._fresh.append(channel)
        self._opened.set()

    def _forget(self, channel: Channel) -> None:
        if channel.is_over:
            self._streams.pop(channel.number, None)

    def _forget_all(self) -> None:
        for channel in tuple(self._streams.values()):
            self._forget(channel)

    def _end_all(self) -> None:
        self.ended = True
        for channel in self._streams.values():
            channel.take_reset()
        self._opened.set()

    def reset(self, channel: Channel) -> None:
        """Resets the stream in both directions."""
        if self._streams.pop(channel.number, None) is not None:
            self._write(self._writer.build_reset(channel.number))
            channel.take_reset()

    def send_end(self, channel: Channel) -> None:
        if not self.ended:
            self._write(self._writer.build_data(channel.number, b"", final=True))
        self._forget(channel)

    def _build(self, channel: Channel, data: bytes) -> bytes:
        return self._wrap(self._writer.build_data(channel.number, data))

    def _write(self, data: bytes) -> None:
        self._wire.write(self._wrap(data))

    def _wrap(self, data: bytes) -> bytes:
        return websocket.build_message(data) if self._socket is not None else data

    def close(self, code: int = websocket.NORMAL, reason: str = "") -> None:
        if not self.ended:
            self.ended = True
            self._write(self._writer.build_goaway(self._last))
        if self._socket is not None:
            self._socket.close(code, reason)
        else:
            self._wire.linger()

    def probe(self) -> None:
        self._write(self._writer.build_ping())
