"""Access to a running Pod through its shim: a program in a container, a connection inside its network.

Used by probes and hooks. `PodAccess` is a protocol so that they can be tested without processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from typing import Protocol

from trainmaster.kit.scopes import finish
from trainmaster.node.shims.link import ShimError
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.shim.wire import Message

KEPT = 1024
"""Bytes of output that are kept for the event's message."""
_PIECE = 65536


class AccessError(Exception):
    """The Pod cannot be reached or refuses; the text is for people."""


class PodAccess(Protocol):
    async def run(self, uid: str, container: str, argv: Sequence[str]) -> tuple[int, str]:
        """Exit code and the beginning of the output. Cancelling it kills the program."""
        ...

    async def connect(self, uid: str, port: int, host: str = "") -> socket.socket:
        """A TCP connection made inside the Pod's network; "" is the Pod itself."""
        ...


class ShimAccess:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def connect(self, uid: str, port: int, host: str = "") -> socket.socket:
        fields: Message = {"port": port, **({"host": host} if host else {})}
        try:
            _, fds = await self._supervisor.request(uid, "connect", **fields)
        except ShimError as error:
            raise AccessError(str(error)) from error
        return socket.socket(fileno=fds[0])

    async def run(self, uid: str, container: str, argv: Sequence[str]) -> tuple[int, str]:
        output = _Output()
        try:
            session = await self._begin(uid, container, argv, output)
            try:
                code = await asyncio.shield(self._supervisor.get_exec_exit(uid, session))
            except asyncio.CancelledError:
                await finish(self._kill(uid, session), limit=5.0)
                raise
        except ShimError as error:
            raise AccessError(str(error)) from error
        finally:
            text = output.close()
        return code, text

    async def _begin(self, uid: str, container: str, argv: Sequence[str], output: _Output) -> int:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fds = (nothing, output.writer, output.writer)
            answer, _ = await self._supervisor.request(uid, "exec", fds, container=container, argv=list(argv))
        finally:
            os.close(nothing)
            output.close_writer()
        return int(answer["exec_id"])

    async def _kill(self, uid: str, session: int) -> None:
        try:
            await self._supervisor.request(uid, "signal", exec_id=session, signal=int(signal.SIGKILL))
        except ShimError:
            return  # the Pod is gone already


class _Output:
    """A pipe that is always drained, so that a program with much output does not block."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._kept = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._drain)

    def _drain(self) -> None:
        try:
            piece = os.read(self._reader, _PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._loop.remove_reader(self._reader)
        self._kept = (self._kept + piece)[:KEPT]

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> str:
        self.close_writer()
        self._drain()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        return self._kept.decode(errors="replace").strip()
