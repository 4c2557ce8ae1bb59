"""exec, attach and port-forward on this node, through the Pod's shim.

Implements the API server's protocol (`apiserver/http/streams/contract.py`) without importing it; `app` connects them.
The shim starts the program with our descriptors; the data does not pass through it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.kit.scopes import finish
from trainmaster.node.shims.descriptors import PIECE, FdReader, FdWriter
from trainmaster.node.shims.link import ShimError
from trainmaster.node.shims.supervisor import Supervisor

_SETTLE_SECONDS = 0.5
"""How long to wait for output after a program's exit, while its descendants hold the streams open."""
_BEGIN_SECONDS = 30.0
_TERMINAL = {"TERM": "xterm"}


class RequestedStreams(Protocol):
    """What a client requested."""

    @property
    def container(self) -> str: ...
    @property
    def stdin(self) -> bool: ...
    @property
    def stdout(self) -> bool: ...
    @property
    def stderr(self) -> bool: ...
    @property
    def tty(self) -> bool: ...
    @property
    def command(self) -> Sequence[str]: ...


class ShimStreams:
    """`refuse` creates the API server's error from a message."""

    def __init__(self, supervisor: Supervisor, refuse: Callable[[str], Exception]) -> None:
        self._supervisor = supervisor
        self._refuse = refuse

    async def run(self, pod: Object, wanted: RequestedStreams) -> ExecutedProgram:
        program = ExecutedProgram(self._supervisor, pod["metadata"]["uid"])
        try:
            # Completed even if the client is gone: a started program must be known to be killed.
            await finish(program.begin(wanted), limit=_BEGIN_SECONDS)
        except (ShimError, OSError) as error:  # TimeoutError is one
            await program.close()
            raise self._refuse(f"error executing command in container: {error}") from error
        except BaseException:
            await program.close()
            raise
        return program

    async def attach(self, pod: Object, wanted: RequestedStreams) -> AttachedProgram:
        asked = {"stdin": wanted.stdin, "stdout": wanted.stdout, "stderr": wanted.stderr}
        streams = [name for name, is_asked in asked.items() if is_asked]
        # Without its output the end would go unnoticed.
        streams += ["stdout"] if "stdout" not in streams else []
        uid = pod["metadata"]["uid"]
        try:
            answer, fds = await self._supervisor.request(uid, "attach", container=wanted.container, streams=streams)
        except ShimError as error:
            raise self._refuse(f"error attaching to container: {error}") from error
        found = dict(zip(answer["streams"], fds, strict=True))
        return AttachedProgram(self._supervisor, uid, wanted.container, found, is_heard=wanted.stdout)

    async def connect(self, pod: Object, port: int) -> PodTunnel:
        try:
            _, fds = await self._supervisor.request(pod["metadata"]["uid"], "connect", port=port)
        except ShimError as error:
            raise self._refuse(str(error)) from error
        return PodTunnel(socket.socket(fileno=fds[0]))


class ExecutedProgram:
    def __init__(self, supervisor: Supervisor, uid: str) -> None:
        self._supervisor = supervisor
        self._uid = uid
        self._session = 0
        self._is_over = False
        self._terminal = -1
        self._input: FdWriter | None = None
        self._outputs: dict[str, FdReader] = {}

    async def begin(self, wanted: RequestedStreams) -> None:
        """Raises ShimError if it cannot be executed."""
        given = self._open_terminal() if wanted.tty else self._open_pipes(wanted)
        try:
            answer, _ = await self._supervisor.request(
                self._uid,
                "exec",
                given,
                container=wanted.container,
                argv=list(wanted.command),
                tty=wanted.tty,
                bound=True,
                env=_TERMINAL if wanted.tty else {},
            )
            self._session = int(answer["exec_id"])
        finally:
            for fd in given:
                os.close(fd)

    def _open_terminal(self) -> list[int]:
        ours, theirs = os.openpty()
        self._terminal = ours
        self._input = FdWriter(os.dup(ours))
        self._outputs["stdout"] = FdReader(os.dup(ours))
        return [theirs]

    def _open_pipes(self, wanted: RequestedStreams) -> list[int]:
        """Three descriptors for the program; unwanted streams are /dev/null."""
        given: list[int] = []
        if wanted.stdin:
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            self._input = FdWriter(ours)
            given.append(theirs)
        else:
            given.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for name, is_wanted in (("stdout", wanted.stdout), ("stderr", wanted.stderr)):
            if is_wanted:
                ours, theirs = os.pipe2(os.O_CLOEXEC)
                self._outputs[name] = FdReader(ours)
                given.append(theirs)
            else:
                given.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
        return given

    async def read(self, stream: str) -> bytes:
        output = self._outputs.get(stream)
        return await output.read() if output is not None else b""

    async def write(self, data: bytes) -> None:
        if self._input is not None:
            await self._input.write(data)

    async def close_input(self) -> None:
        """Does nothing for a terminal, whose program continues."""
        if self._input is not None and self._terminal < 0:
            self._input.close()

    async def resize(self, columns: int, rows: int) -> None:
        if self._terminal >= 0:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait(self) -> int:
        try:
            code = await asyncio.shield(self._supervisor.get_exec_exit(self._uid, self._session))
        except ShimError:
            code = 137  # the Pod was killed
        self._is_over = True
        for output in self._outputs.values():
            output.end_after_idle(_SETTLE_SECONDS)
        return code

    async def close(self) -> None:
        if self._session and not self._is_over:
            try:
                await self._supervisor.request(self._uid, "signal", exec_id=self._session, signal=int(signal.SIGKILL))
            except ShimError:
                self._is_over = True  # the Pod is gone already
        if self._input is not None:
            self._input.close()
        for output in self._outputs.values():
            output.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


class AttachedProgram:
    def __init__(
        self, supervisor: Supervisor, uid: str, container: str, fds: dict[str, int], *, is_heard: bool
    ) -> None:
        self._supervisor = supervisor
        self._uid = uid
        self._container = container
        self._input = FdWriter(fds["stdin"]) if "stdin" in fds else None
        self._outputs = {name: FdReader(fd) for name, fd in fds.items() if name != "stdin"}
        self._is_heard = is_heard
        self._left = len(self._outputs)
        self._ended = asyncio.Event()

    async def read(self, stream: str) -> bytes:
        output = self._outputs.get(stream)
        if output is None:
            return b""
        data = await output.read()
        if not data:
            self._left -= 1
            if self._left == 0:
                self._ended.set()
        return data

    async def write(self, data: bytes) -> None:
        if self._input is not None:
            await self._input.write(data)

    async def close_input(self) -> None:
        """With `stdinOnce` the program sees the end of its input, otherwise the next client can continue."""
        if self._input is None:
            return
        self._input.close()
        try:
            await self._supervisor.request(self._uid, "close_input", container=self._container)
        except ShimError:
            return  # it has exited, or its shim is of a version that has closed its end already

    async def resize(self, columns: int, rows: int) -> None:
        try:
            await self._supervisor.request(self._uid, "resize", container=self._container, rows=rows, cols=columns)
        except ShimError:
            return  # it has no terminal or has exited

    async def wait(self) -> int:
        """Until the container has ended. Its exit code is in the Pod's status."""
        while not self._is_heard and await self.read("stdout"):
            continue  # not attached
        await self._ended.wait()
        return 0

    async def close(self) -> None:
        if self._input is not None:
            self._input.close()
        for output in self._outputs.values():
            output.close()


class PodTunnel:
    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self._link = link
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes:
        try:
            return await self._loop.sock_recv(self._link, PIECE)
        except OSError as error:
            raise ConnectionResetError(str(error)) from error

    async def write(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._link, data)
        except OSError as error:
            raise ConnectionResetError(str(error)) from error

    def end_writing(self) -> None:
        try:
            self._link.shutdown(socket.SHUT_WR)
        except OSError:
            return  # already closed

    def close(self) -> None:
        self._link.close()
