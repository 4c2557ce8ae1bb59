"""`exec` and `attach` inside a shim: programs that join a running container, and live copies of its output.

The control plane passes descriptors and copies data to its clients; the shim only starts the program and reports its
exit. A program started by `exec` belongs to its container and is killed with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable
from dataclasses import replace

from trainmaster.shim import launch
from trainmaster.shim.attempt import Attempt, enlarge
from trainmaster.shim.log_sink import STDERR, STDOUT
from trainmaster.shim.loop import Loop
from trainmaster.shim.protocol import ContainerSpec
from trainmaster.shim.sandbox.build import Sandbox
from trainmaster.shim.wire import Message, close_all

_COPY_BYTES = 1 << 20


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
