"""Accepts connections from a listening socket, counts them before the TLS handshake, and survives running out of
descriptors.

The event loop's own server reports a connection only after its handshake, so clients that stay silent would not be
counted. Here every connection is a `Visitor` from the start, handshakes have a time limit, and only a few connections
are accepted per iteration of the loop, so that existing connections are not starved.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from trainmaster.edge.gatekeeper import Gatekeeper, Visitor
from trainmaster.edge.limits import EdgeLimits
from trainmaster.kit.scopes import Scope

log = logging.getLogger(__name__)

_PER_TURN = 32
_PAUSE_SECONDS = 0.2
_MOMENT_SECONDS = 0.02
"""How long closing displaced connections may take."""
_SHUTDOWN_SECONDS = 5.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

MakeProtocol = Callable[[Visitor], asyncio.Protocol]


class Acceptor:
    """Closing it leaves established connections alone."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        make_protocol: MakeProtocol,
        gatekeeper: Gatekeeper,
        limits: EdgeLimits,
        scope: Scope,
    ) -> None:
        self._listener = listener
        self.tls = tls
        """For the next connections."""
        self._make_protocol = make_protocol
        self._gatekeeper = gatekeeper
        self._limits = limits
        self._scope = scope
        self._loop = asyncio.get_running_loop()
        self._reserve = _open_reserve()
        self._is_closed = False
        self._was_exhausted = False
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._take)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._reserve is not None:
            os.close(self._reserve)

    def _take(self) -> None:
        for _ in range(_PER_TURN):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                # The peer disconnected before it was accepted.
                continue
            self._was_exhausted = False
            self._accept(sock, address)

    def _accept(self, sock: socket.socket, address: tuple[str, int]) -> None:
        visitor = Visitor(address[0] if address else "", address[1] if len(address) > 1 else 0)
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._scope.spawn_guarded(self._establish(sock, visitor), name="edge.establish")
        visitor.end = partial(_end_early, task, sock)
        if not self._gatekeeper.admit(visitor):
            visitor.end()

    async def _establish(self, sock: socket.socket, visitor: Visitor) -> None:
        """Runs the handshake. After that the connection's protocol is responsible for closing it."""
        made: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            made.append(self._make_protocol(visitor))
            return made[0]

        seconds = self._limits.handshake_seconds
        try:
            # The loop has its own handshake limit; this one covers transports that hang before the handshake starts.
            async with asyncio.timeout(seconds + 1):
                await self._loop.connect_accepted_socket(
                    make,
                    sock,
                    ssl=self.tls,
                    ssl_handshake_timeout=seconds if self.tls else None,
                    ssl_shutdown_timeout=_SHUTDOWN_SECONDS if self.tls else None,
                )
        except (OSError, TimeoutError, EOFError):
            # Not TLS, too slow, or gone. ssl.SSLError is an OSError.
            self._fail(sock, visitor)
        except asyncio.CancelledError:
            self._fail(sock, visitor)
            raise

    def _fail(self, sock: socket.socket, visitor: Visitor) -> None:
        self._gatekeeper.remove(visitor)
        # `end` refers to the task whose traceback refers to the visitor: break the cycle.
        visitor.forget_end()
        with suppress(OSError):
            sock.close()

    def _pause(self, error: OSError) -> None:
        """Handles running out of descriptors: closes an unauthenticated connection, or turns the next client away."""
        if not self._was_exhausted:
            log.warning("no descriptor is left", extra={"action": "edge.exhausted", "error": str(error)})
        self._was_exhausted = True
        made = sum(self._gatekeeper.make_room() for _ in range(_PER_TURN))
        if not made and self._reserve is not None:
            os.close(self._reserve)
            with suppress(OSError):
                self._listener.accept()[0].close()
            self._reserve = _open_reserve()
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_MOMENT_SECONDS if made else _PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if not self._is_closed:
            if self._reserve is None:
                self._reserve = _open_reserve()
            self._loop.add_reader(self._listener.fileno(), self._take)


def _end_early(task: asyncio.Task[None], sock: socket.socket) -> None:
    """Closes a connection in the middle of its handshake."""
    task.cancel()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _open_reserve() -> int | None:
    """A spare descriptor, released when no other is left, so that a client can be accepted and turned away."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
