"""Takes connections from a listening socket: counted before the TLS handshake, and alive when descriptors run out.

The event loop's own server shows a connection only after its handshake, so silence would not be counted anywhere. Here
every connection is a `Visitor` from the start, handshakes have a time, and few connections are taken per turn of the
loop, so that those which are there already get theirs.
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
"""Until those who gave way are closed."""
_SHUTDOWN_SECONDS = 5.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

MakeProtocol = Callable[[Visitor], asyncio.Protocol]


class Acceptor:
    """`close` leaves connections that are there alone."""

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
        self._tls = tls
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
                # The peer has gone before its turn came.
                continue
            self._was_exhausted = False
            self._welcome(sock, address)

    def _welcome(self, sock: socket.socket, address: tuple[str, int]) -> None:
        visitor = Visitor(address[0] if address else "", address[1] if len(address) > 1 else 0)
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._scope.spawn_guarded(self._establish(sock, visitor), name="edge.establish")
        visitor.end = partial(_end_early, task, sock)
        if not self._gatekeeper.let_in(visitor):
            visitor.end()

    async def _establish(self, sock: socket.socket, visitor: Visitor) -> None:
        """Until the connection speaks for itself: its protocol then ends it and takes leave."""
        made: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            made.append(self._make_protocol(visitor))
            return made[0]

        seconds = self._limits.handshake_seconds
        try:
            # The loop's own limit ends handshakes; this one ends it where the loop's transport hangs before it begins.
            async with asyncio.timeout(seconds + 1):
                await self._loop.connect_accepted_socket(
                    make,
                    sock,
                    ssl=self._tls,
                    ssl_handshake_timeout=seconds if self._tls else None,
                    ssl_shutdown_timeout=_SHUTDOWN_SECONDS if self._tls else None,
                )
        except (OSError, TimeoutError, EOFError):
            # Not TLS, too slow, or gone. ssl.SSLError is an OSError.
            self._fail(sock, visitor)
        except asyncio.CancelledError:
            self._fail(sock, visitor)
            raise

    def _fail(self, sock: socket.socket, visitor: Visitor) -> None:
        self._gatekeeper.leave(visitor)
        # Its end names the task whose traceback names the visitor: a circle, and the collector would have to find it.
        visitor.forget_end()
        with suppress(OSError):
            sock.close()

    def _pause(self, error: OSError) -> None:
        """No descriptor is left: strangers make room, or whoever waits longest is turned away, and others get time."""
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
    """In the middle of the handshake."""
    task.cancel()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _open_reserve() -> int | None:
    """Given up when there is no other descriptor, to turn somebody away instead of letting everybody wait."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
