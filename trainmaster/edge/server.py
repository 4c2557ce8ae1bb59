"""A listening port: accepts connections, checks them once a second, and drains them on exit.

`EdgeServer` is an async context manager and the `Application` of each `Connection`; its subclasses (API server, REST,
the operator's status server) serve the requests. Works on asyncio's loop and on uvloop.

On exit it drains: new connections are refused, streams end cleanly, requests in progress are completed, and idle
connections are closed.
"""

from __future__ import annotations

import abc
import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

from trainmaster.edge.accepting import Acceptor
from trainmaster.edge.connection import Connection, Phase
from trainmaster.edge.gatekeeper import Gatekeeper, Visitor
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope

R = TypeVar("R", bound=IncomingRequest)

BACKLOG = 1024


def open_listener(host: str, port: int) -> socket.socket:
    """Raises OSError if the address is not available. Without a host it listens on all addresses."""
    if not host:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class EdgeServer(abc.ABC, Generic[R]):
    reads_while_serving = False

    def __init__(
        self,
        limits: EdgeLimits,
        clock: Clock,
        *,
        gatekeeper: Gatekeeper | None = None,
        tls: ssl.SSLContext | None = None,
        name: str = "http",
    ) -> None:
        self.limits: EdgeLimits = limits
        self.tick = 0
        self.gatekeeper = gatekeeper or Gatekeeper(limits)
        self._clock = clock
        self._tls = tls
        self._name = name
        self._connections: set[Connection[R]] = set()
        self._draining = False
        self._scope = Scope(name)
        self._stack = AsyncExitStack()
        self._acceptor: Acceptor | None = None
        self._address = ("", 0)

    # To be overridden by each port

    @abc.abstractmethod
    def make_request(self, method: str, target: str, headers: dict[str, str], body: bytes, /) -> R: ...

    @abc.abstractmethod
    def serve(self, request: R, connection: Connection[R]) -> None: ...

    @abc.abstractmethod
    def refuse(self, refusal: EdgeRefusal, connection: Connection[R]) -> None: ...

    def admit_body(self, headers: Mapping[str, str], connection: Connection[R]) -> EdgeRefusal | None:
        return None

    def open_socket(self) -> socket.socket:
        """Called on entering. Raises OSError if the address is not available."""
        raise NotImplementedError

    def start(self) -> None:
        """Called on entering, before the first connection. Starts tasks that the port needs."""

    def on_tick(self) -> None:
        """Called once a second."""

    def stop_streams(self) -> None:
        """Called when draining begins: ends answers that would otherwise never end."""

    # Life cycle

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._scope)
            self._scope.spawn_forever(self._sweep(), name=f"{self._name}.sweep")
            self.start()
            listener = self.open_socket()
            self._address = listener.getsockname()[:2]
            self._acceptor = Acceptor(
                listener, self._tls, self._make_connection, self.gatekeeper, self.limits, self._scope
            )
            stack.callback(self._acceptor.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.drain()
        finally:
            for connection in tuple(self._connections):
                connection.abort()
            await self._stack.__aexit__(kind, error, trace)

    def _make_connection(self, visitor: Visitor) -> Connection[R]:
        return Connection(self, visitor)

    @property
    def address(self) -> tuple[str, int]:
        assert self._acceptor is not None, "the server is not running"
        return self._address

    @property
    def url(self) -> str:
        host, port = self.address
        return f"{'https' if self._tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def replace_tls(self, context: ssl.SSLContext) -> None:
        """For new connections. Of established ones, the idle are closed; the others are not recognised by their
        certificate from their next request on."""
        self._tls = context
        if self._acceptor is not None:
            self._acceptor.tls = context
        for connection in tuple(self._connections):
            connection.forget_certificate()
            if not connection.busy:
                connection.close()

    async def drain(self) -> None:
        """Stops accepting, ends streams with their closing chunk, and waits for requests in progress."""
        if self._draining:
            return
        self._draining = True
        if self._acceptor is not None:
            self._acceptor.close()
        self.stop_streams()
        for connection in tuple(self._connections):
            if connection.phase in (Phase.STREAMING, Phase.UPGRADED) and connection.task is not None:
                connection.task.cancel()
            elif not connection.busy:
                connection.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.drain_seconds
        while any(connection.busy for connection in self._connections) and loop.time() < deadline:
            await self._clock.sleep(0.01)

    async def _sweep(self) -> None:
        """Closes overdue connections, once a second."""
        while True:
            await self._clock.sleep(1.0)
            self.tick += 1
            self.on_tick()
            for connection in tuple(self._connections):
                if connection.is_overdue():
                    self._cut(connection)

    def _cut(self, connection: Connection[R]) -> None:
        if connection.phase not in (Phase.HEADERS, Phase.BODY) or connection.closing:
            connection.abort()
            return
        name = "header_seconds" if connection.phase is Phase.HEADERS else "body_seconds"
        seconds = getattr(self.limits, name)
        text = f"the request was not received in time: {seconds:g} seconds (limits.{name})"
        refusal = EdgeRefusal(408, "Timeout", text)
        if connection.is_receiving:
            connection.fail_body(refusal)
        else:
            self.refuse(refusal, connection)

    # connection.Application

    def opened(self, connection: Connection[R]) -> None:
        connection.visitor.end = connection.abort
        if self._draining:
            connection.abort()
            return
        self._connections.add(connection)

    def closed(self, connection: Connection[R]) -> None:
        self._connections.discard(connection)
        self.gatekeeper.remove(connection.visitor)
