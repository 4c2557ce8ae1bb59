"""`exec` and `attach` inside a shim: programs that join a running container, and live copies of its output.

The control plane passes descriptors and copies data to its clients; the shim only starts the program and reports its
exit. A program started by `exec` belongs to its container and is killed with it.

`GangExec` does the same for another Pod of the job, without the control plane: the launcher of an MPIJob. Who can reach
its socket is decided by the directory, which only that launcher sees (`node.gangs`). A connection carries one program:
a record with `container` and `argv`, and the descriptors of its three streams. The answers are `started`, then `code`;
or `error` with its `kind`. If the connection ends first, the program is killed. Nothing else can be requested.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from trainmaster.shim import launch, wire
from trainmaster.shim.attempt import Attempt, enlarge
from trainmaster.shim.log_sink import STDERR, STDOUT
from trainmaster.shim.loop import Loop
from trainmaster.shim.protocol import ContainerSpec
from trainmaster.shim.sandbox.build import Sandbox, SandboxError
from trainmaster.shim.wire import Message, close_all

_COPY_BYTES = 1 << 20
_MOST_CALLERS = 64
_MODE = 0o666
"""The launcher may run as another user."""


class SessionError(Exception):
    """The request failed; the text goes to the client."""


class ShimSession:
    """A program started by `exec`."""

    def __init__(self, number: int, loop: Loop, tty: int, on_start: Callable[[ShimSession, str], None]) -> None:
        self.number = number
        self.pid = 0
        self.container = ""
        self.tty = tty
        """A copy of the terminal for resizing; -1 if there is none."""
        self.error = ""
        self.owner: object = None
        """The connection with which it ends; None if it is independent of one."""
        self.on_exit: Callable[[int], None] | None = None
        """Called with its exit code; if None, all subscribers are told."""
        self.is_visit = False
        """It looks at the container's processes and is none of them."""
        self._loop = loop
        self._report = -1
        self._on_start = on_start

    def begin(self, sandbox: Sandbox, attempt: Attempt, spec: ContainerSpec, fds: list[int]) -> None:
        stdio = (fds[0], fds[0], fds[0]) if self.tty >= 0 else (fds[0], fds[1], fds[2])
        pidfd = os.pidfd_open(attempt.pid)
        try:
            self.pid, self._report = launch.fork_program(
                spec, stdio, lambda: sandbox.join(spec, pidfd), tty=self.tty >= 0, fork=lambda: sandbox.fork(spec)
            )
        finally:
            os.close(pidfd)
        self.container = spec.name
        self._loop.add(self._report, self.read_report)

    def read_report(self, _: int = 0) -> None:
        while self._report >= 0:
            try:
                piece = os.read(self._report, 4096)
            except BlockingIOError:
                return
            self.error += piece.decode(errors="replace")
            if piece:
                continue
            self._loop.remove(self._report)
            os.close(self._report)
            self._report = -1
            self._on_start(self, self.error)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signals the program and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def close(self) -> None:
        if self.tty >= 0:
            os.close(self.tty)
            self.tty = -1


def build_exec(attempt: Attempt, request: Message) -> ContainerSpec:
    """The container's spec with the changes from the request."""
    argv = request.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise SessionError("exec needs argv, a list of strings")
    spec = replace(attempt.spec, argv=tuple(argv), env={**attempt.spec.env, **(request.get("env") or {})}, warm="")
    if request.get("directory"):
        spec = replace(spec, directory=str(request["directory"]))
    if request.get("uid") is not None:
        spec = replace(spec, run_as_user=int(request["uid"]))
    return spec


def resize(terminal: int, rows: int, columns: int) -> None:
    if terminal < 0:
        raise SessionError("it has no terminal")
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def attach(attempt: Attempt, wanted: list[str]) -> tuple[list[str], list[int]]:
    """Names of streams and a descriptor for each, which the caller closes: stdin for writing, others for reading.

    The shim keeps its own end of the input: if the control plane is killed, the program waits for the next client
    instead of taking half of its input for all of it. The first client to attach to a container with an input also
    gets what the program has printed before, such as its prompt.
    """
    names: list[str] = []
    fds: list[int] = []
    try:
        if "stdin" in wanted and attempt.input is not None:
            fds.append(os.dup(attempt.input))
            names.append("stdin")
        for name, stream in (("stdout", STDOUT), ("stderr", STDERR)):
            if name in wanted and not (attempt.spec.tty and stream == STDERR):
                fds.append(_open_copy(attempt, stream))
                names.append(name)
    except OSError as error:
        close_all(fds)
        raise SessionError(f"cannot attach: {error.strerror}") from error
    attempt.forget_unseen()
    return names, fds


def close_input(attempt: Attempt) -> None:
    """The client that wrote to it is done: with `stdinOnce` the program sees the end of its input."""
    if attempt.input is not None and attempt.spec.stdin_once and not attempt.spec.tty:
        os.close(attempt.input)
        attempt.input = None


def _open_copy(attempt: Attempt, stream: bytes) -> int:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    enlarge(writer, _COPY_BYTES)
    attempt.add_copy(writer, stream)
    return reader


class BeginSession(Protocol):
    def __call__(
        self,
        request: Message,
        fds: list[int],
        on_start: Callable[[ShimSession, str], None],
        on_exit: Callable[[int], None],
    ) -> ShimSession: ...


class GangCaller:
    """A connection from the launcher."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.session: ShimSession | None = None


class GangExec:
    def __init__(self, loop: Loop, path: str, begin: BeginSession) -> None:
        """Raises OSError if the directory does not exist any more."""
        self._loop = loop
        self._path = path
        self._begin = begin
        self._callers: set[GangCaller] = set()
        directory, name = os.path.split(path)
        self._listener = wire.listen_in(directory, name, _MODE)
        loop.add(self._listener.fileno(), self._accept)

    def close(self) -> None:
        self._loop.remove(self._listener.fileno())
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        for caller in tuple(self._callers):
            self._drop(caller)

    def _accept(self, _: int) -> None:
        link = wire.accept(self._listener)
        if link is None:
            return
        caller = GangCaller(link)
        self._callers.add(caller)
        if len(self._callers) > _MOST_CALLERS:
            self._end(
                caller, _refuse(SessionError(f"{_MOST_CALLERS} programs were started in this Pod by its launcher"))
            )
            return
        self._loop.add(link.fileno(), lambda _: self._listen_to(caller))

    def _listen_to(self, caller: GangCaller) -> None:
        fds: Sequence[int] = ()
        try:
            message, fds = wire.receive(caller.link)
            if message is None or caller.session is not None:
                self._drop(caller)
            else:
                self._start(caller, message, fds)
        except BlockingIOError:
            return
        except (wire.WireError, OSError):
            self._drop(caller)
        finally:
            close_all(fds)

    def _start(self, caller: GangCaller, message: Message, fds: list[int]) -> None:
        def on_start(_: ShimSession, error: str) -> None:
            if error:
                self._end(caller, {"error": error, "kind": "ExecError"})
            else:
                self._send(caller, {"started": True})

        request = {"container": message.get("container"), "argv": message.get("argv")}
        try:
            caller.session = self._begin(request, fds, on_start, lambda code: self._end(caller, {"code": code}))
        except (SessionError, SandboxError, OSError) as error:
            self._end(caller, _refuse(error))

    def _send(self, caller: GangCaller, message: Message) -> None:
        if caller in self._callers:
            try:
                wire.send(caller.link, message)
            except OSError:
                self._drop(caller)

    def _end(self, caller: GangCaller, message: Message) -> None:
        """The last message: the program has ended or did not start."""
        caller.session = None
        self._send(caller, message)
        self._drop(caller)

    def _drop(self, caller: GangCaller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
            self._loop.remove(caller.link.fileno())
            caller.link.close()
            if caller.session is not None:
                caller.session.kill()


def _refuse(error: Exception) -> Message:
    return {"error": str(error), "kind": type(error).__name__}
