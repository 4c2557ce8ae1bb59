"""port-forward: TCP connections to ports of a Pod, carried by the streams of a session.

kubectl opens two SPDY streams per connection, `error` and `data`, that are matched by `requestid`. Other clients name
the ports in the query and get two numbered channels for each, with one connection. An error of one connection is
written to its error stream and does not affect others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trainmaster.apiserver.http.streams.contract import PodStreamError, Tunnel, read_port
from trainmaster.apiserver.http.streams.sessions import (
    MOST_STREAMS,
    Channel,
    NumberedChannels,
    SpdyStreams,
    StreamSession,
)
from trainmaster.kit.scopes import Scope

Connect = Callable[[int], Awaitable[Tunnel]]


@dataclass(frozen=True, slots=True)
class Forwarder:
    connect: Connect
    describe: str
    """Names the Pod in error messages."""
    ports: tuple[int, ...] = ()
    """Ports of numbered channels."""

    async def serve_streams(self, session: StreamSession) -> None:
        assert isinstance(session, SpdyStreams)
        waiting: dict[str, Channel] = {}
        async with Scope("http.forward") as scope:
            while (stream := await session.wait_for_stream()) is not None:
                kind, request = stream.headers.get("streamtype", ""), stream.headers.get("requestid", "")
                port = read_port(stream.headers.get("port", ""))
                if kind == "error" and port is not None and len(waiting) < MOST_STREAMS:
                    waiting[request] = stream
                elif kind == "data" and port is not None and request in waiting:
                    work = self._forward_stream(session, port, stream, waiting.pop(request))
                    scope.spawn_guarded(work, name="http.forward")
                else:
                    session.reset(stream)

    async def _forward_stream(self, session: SpdyStreams, port: int, data: Channel, error: Channel) -> None:
        try:
            await self._forward(port, data, error, is_shared=True)
        except ConnectionResetError:
            session.reset(data)
            session.reset(error)

    async def serve_channels(self, session: StreamSession) -> None:
        assert isinstance(session, NumberedChannels)
        async with Scope("http.forward") as scope:
            tasks = [
                scope.spawn(self._forward_channels(session, number, port), name="http.forward")
                for number, port in enumerate(self.ports)
            ]
            for task in tasks:
                await task
        session.close()

    async def _forward_channels(self, session: NumberedChannels, number: int, port: int) -> None:
        data, error = session.channels[2 * number], session.channels[2 * number + 1]
        for channel in (data, error):
            await channel.write(port.to_bytes(2, "little"))
        await self._forward(port, data, error, is_shared=False)

    async def _forward(self, port: int, data: Channel, error: Channel, *, is_shared: bool) -> None:
        """`is_shared`: the client can close its direction alone, so both are waited for."""
        try:
            tunnel = await self.connect(port)
        except PodStreamError as failure:
            await error.write(f"error forwarding port {port} to pod {self.describe}: {failure}".encode())
            error.end()
            data.end()
            return
        error.end()
        try:
            async with Scope("http.tunnel") as scope:
                inward = scope.spawn(_copy_in(data, tunnel), name="http.tunnel.in")
                await _copy_out(tunnel, data)
                data.end()
                if is_shared:
                    await inward
        finally:
            tunnel.close()


async def _copy_out(tunnel: Tunnel, data: Channel) -> None:
    while piece := await tunnel.read():
        await data.write(piece)


async def _copy_in(data: Channel, tunnel: Tunnel) -> None:
    while piece := await data.read():
        await tunnel.write(piece)
    tunnel.end_writing()
