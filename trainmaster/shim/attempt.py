"""One attempt of a container inside its shim: starts it once, reads its output and records its exit.

Order of files: the marker that the attempt has begun (created exclusively, so there is never a second process), the
result of the start, then the exit. The exit is written after all processes of the container are dead and their output
is in the log, so whoever sees it sees the complete log. Pipes that are still open one second later are not waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace

from trainmaster.shim import exits, launch
from trainmaster.shim.log_sink import STDERR, STDOUT, LogSink
from trainmaster.shim.loop import Loop, Timer, get_monotonic, get_wall
from trainmaster.shim.processes import TOKEN, kill_quietly, list_children, make_token, read_inner_pid
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Exited, Paths, Started, encode, write_whole
from trainmaster.shim.sandbox.build import Sandbox
from trainmaster.shim.warm import conditions

_PIECE = 1 << 16
_PIPE_BYTES = 1 << 18
_DRAIN_SECONDS = 1.0
_LAST_READS = 64
"""More reads than a full pipe or terminal needs; beyond that somebody is still writing."""
_RETRY_SECONDS = 1.0
_UNSEEN_BYTES = 1 << 16
"""How much output is kept for the first client that attaches to a container with an input."""

_WINDOW_SECONDS = 0.25
_PUMP_SHARE = 0.2
"""How much of one processor reading the output of a tenant's container may use."""
_PUMP_BYTES = 2 << 20
"""Bytes per window: 8 MiB per second go to the disk."""


class AlreadyBegun(Exception):
    """This attempt has begun before; there is never a second process for it."""


class Attempt:
    def __init__(
        self,
        loop: Loop,
        paths: Paths,
        sandbox: Sandbox,
        spec: ContainerSpec,
        on_started: Callable[[Attempt], None],
        on_exited: Callable[[Attempt], None],
    ) -> None:
        token = make_token(sandbox.pod.uid, spec.name, spec.attempt)
        # Without a memory control group, pages that a warm program shares with its zygote would be counted as its own.
        warm_key = "" if sandbox.needs_watch(spec.limits) else spec.warm
        self.spec = replace(spec, env={**spec.env, TOKEN: token}, warm=warm_key)
        self.token = token
        self.pid = 0
        """The pid in the shim's pid namespace."""
        self.session = 0
        self.started: Started | None = None
        self.exited: Exited | None = None
        self.terminal = -1
        """The shim's end of the pseudo-terminal."""
        self.input: int | None = None
        """A descriptor for its standard input, while a client may still attach and write to it."""
        self._loop = loop
        self._paths = paths
        self._sandbox = sandbox
        self._window = (0.0, 0.0, 0)
        """The start of the window, and the shim's processor time and output bytes at that moment."""
        self._output_bytes = 0
        self._over_limit = ""
        """The resource limit that it exceeded: "memory" or "pids"."""
        self._on_started = on_started
        self._on_exited = on_exited
        self._sink: LogSink | None = None
        self._mark = -1
        self._report = -1
        self._reason = b""
        self._outputs: dict[int, bytes] = {}
        self._copies: dict[int, bytes] = {}
        self._unseen = {STDOUT: bytearray(), STDERR: bytearray()} if spec.stdin else {}
        """The end of each output, for the first client that attaches."""
        self._status: int | None = None
        self._died_at = 0.0
        self._memory = 0
        self._drain: Timer | None = None
        self._tree_gone = False

    @property
    def running(self) -> bool:
        """The main process is not reaped yet, so the pid cannot have been reused."""
        return self.pid > 0 and self._status is None

    @property
    def dying(self) -> bool:
        """The main process has exited, but other processes of the container may still run."""
        return self._status is not None and not self._tree_gone

    def claim(self) -> None:
        """Creates the marker that the attempt has begun. Raises AlreadyBegun if it exists, OSError if it cannot be
        created."""
        path = self._paths.started(self.spec.name, self.spec.attempt)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise AlreadyBegun(f"attempt {self.spec.attempt} of {self.spec.name} was begun before") from None
        self._mark = handle
        os.write(handle, encode(Started(0, 0.0)))

    def begin(self) -> None:
        """Starts the program, after `claim`. Errors are recorded as a failed start."""
        name, number = self.spec.name, self.spec.attempt
        try:
            os.makedirs(os.path.dirname(self._paths.log(name, number)), 0o700, exist_ok=True)
            self._sink = LogSink(self._paths.log(name, number), self.spec.log_max_bytes, self.spec.log_keep)
            if self._sandbox.pod.level != PLAIN:
                _make_message_file(self._paths.message(name, number))
            self._fork()
        except OSError as error:
            self._fail(f"cannot start: {error.strerror or error}")

    def _fork(self) -> None:
        opened: list[int] = []
        try:
            stdio = self._open_terminal(opened) if self.spec.tty else self._open_pipes(opened)
            enter = lambda: self._sandbox.enter(self.spec)  # noqa: E731 - a closure for the child
            fork = lambda: self._sandbox.fork(self.spec)  # noqa: E731
            self.pid, self._report = launch.fork_program(self.spec, stdio, enter, tty=self.spec.tty, fork=fork)
        except OSError:
            for fd in tuple(self._outputs):
                self._close_output(fd)
            raise
        finally:
            for fd in opened:
                os.close(fd)
        self._loop.add(self._report, self._read_report)
        for fd in self._outputs:
            os.set_blocking(fd, False)

    def _open_terminal(self, opened: list[int]) -> tuple[int, int, int]:
        self.terminal, other = os.openpty()
        opened.append(other)
        self._add_output(self.terminal, STDOUT)
        if self.spec.stdin:
            self.input = os.dup(self.terminal)
        return other, other, other

    def _open_pipes(self, opened: list[int]) -> tuple[int, int, int]:
        if self.spec.stdin:
            stdin, self.input = os.pipe2(os.O_CLOEXEC)
        else:
            stdin = launch.open_stdin()
        opened.append(stdin)
        ends = []
        for stream in (STDOUT, STDERR):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            opened.append(writer)
            ends.append(writer)
            enlarge(reader, _PIPE_BYTES)
            self._add_output(reader, stream)
        return stdin, ends[0], ends[1]

    def _add_output(self, fd: int, stream: bytes) -> None:
        self._outputs[fd] = stream
        self._loop.add(fd, lambda _: self._pump(fd))

    # The start

    def _read_report(self, _: int = 0) -> None:
        while self._report >= 0:
            try:
                piece = os.read(self._report, 4096)
            except BlockingIOError:
                return
            if piece:
                self._reason += piece
                continue
            self._loop.remove(self._report)
            os.close(self._report)
            self._report = -1
            self._settle_start()

    def _settle_start(self) -> None:
        note, error = conditions.split_report(self._reason)
        pid = _get_machine_pid(self._sandbox, self.pid)
        self.started = Started(pid, 0.0 if error else get_wall(), error, note)
        self.session = pid
        self._record_start(self.started)
        self._on_started(self)

    def _fail(self, error: str) -> None:
        """Records that the program could not be forked."""
        self.started = Started(0, 0.0, error)
        self._record_start(self.started)
        self._on_started(self)
        self._tree_gone = True
        self._status, self._died_at = 0, get_wall()
        self._finish()

    def _record_start(self, started: Started) -> None:
        """Overwrites the marker with one write. The new content is longer than the old one."""
        try:
            os.pwrite(self._mark, encode(started), 0)
        except OSError as error:
            launch.write_log(f"cannot record the start: {error}")
        finally:
            os.close(self._mark)
            self._mark = -1

    # Output

    def _pump(self, fd: int) -> None:
        """Reads output. A tenant's program controls how much there is and the shim is in no control group, so reading
        pauses when it has used too much processor time or written too much; the program then blocks on its full
        pipe."""
        more = self._read_in_order(fd)
        if not more or not self._sandbox.pod.tenant_cgroup:
            return
        now, spent = get_monotonic(), time.process_time()
        if now - self._window[0] > _WINDOW_SECONDS:
            self._window = (now, spent, self._output_bytes)
        elif (
            spent - self._window[1] > _WINDOW_SECONDS * _PUMP_SHARE
            or self._output_bytes - self._window[2] > _PUMP_BYTES
        ):
            self._loop.remove(fd)
            self._loop.call_after(self._window[0] + _WINDOW_SECONDS - now, lambda: self._resume_output(fd))

    def _resume_output(self, fd: int) -> None:
        if fd in self._outputs:
            self._loop.add(fd, lambda _: self._pump(fd))

    def _read_in_order(self, fd: int) -> bool:
        """Reads one piece. Before one of the standard error it reads all that waits in the standard output: on a busy
        machine that may be much, and a traceback has to stand after what the program printed before it, at the end of
        the log."""
        if self._outputs[fd] == STDOUT:
            return self._read_output(fd)
        size = _count_waiting(fd)
        for other in [other for other, stream in self._outputs.items() if stream == STDOUT]:
            left = _count_waiting(other)
            while left > 0 and other in self._outputs:
                left -= _PIECE
                self._read_output(other)
        return self._read_output(fd, max(1, min(size, _PIECE)))

    def _read_output(self, fd: int, most: int = _PIECE) -> bool:
        """Reads one piece. False if nothing is available."""
        try:
            data = os.read(fd, most)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody has open any more reports an I/O error
            data = b""
        if not data:
            self._close_output(fd)
            self._settle_end()
            return False
        assert self._sink is not None
        self._output_bytes += len(data)
        stream = self._outputs[fd]
        self._sink.feed(stream, data)
        if self._unseen:
            self._unseen[stream] += data
            del self._unseen[stream][:-_UNSEEN_BYTES]
        for copy, wanted in tuple(self._copies.items()):
            if wanted == stream:
                self._copy(copy, data)
        return True

    def _close_output(self, fd: int) -> None:
        self._outputs.pop(fd, None)
        self._loop.remove(fd)
        if fd != self.terminal:
            os.close(fd)

    def add_copy(self, fd: int, stream: bytes) -> None:
        """Sends a copy of the output to `fd` from now on, after what no client has seen yet. A slow reader misses part
        of it."""
        os.set_blocking(fd, False)
        self._copies[fd] = stream
        self._loop.add(fd, lambda _: self._drop_copy(fd), 0)
        if self._unseen.get(stream):
            self._copy(fd, bytes(self._unseen[stream]))

    def forget_unseen(self) -> None:
        """A client sees everything from now on."""
        self._unseen = {}

    def _copy(self, fd: int, data: bytes) -> None:
        try:
            os.write(fd, data)
        except BlockingIOError:
            return
        except OSError:
            self._drop_copy(fd)

    def _drop_copy(self, fd: int) -> None:
        if self._copies.pop(fd, None) is not None:
            self._loop.remove(fd)
            os.close(fd)

    # The end

    def signal(self, number: int) -> None:
        """Signals the main process and its process group."""
        if not self.running:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Before setsid there is no such group, and we may not be allowed to signal one whose members changed their
            # user.
            kill_quietly(self.pid, number)

    def note_over_limit(self, what: str) -> None:
        """Records that it exceeds a limit which only the shim enforces."""
        self._over_limit = what
        self.signal(signal.SIGKILL)

    def note_death(self, status: int, memory: int = 0) -> None:
        self._status, self._memory = status, memory
        self._died_at = get_wall()
        self._read_report()

    def note_tree_gone(self) -> None:
        """All processes of the container are gone; only what is still in the pipes is left to read."""
        if self._tree_gone or self._status is None:
            return
        self._tree_gone = True
        self._drain = self._loop.call_after(_DRAIN_SECONDS, self._give_up_draining)
        self._settle_end()

    def _give_up_draining(self) -> None:
        """Reads what is in the pipes now and stops: on a busy machine nothing may have been read for a second."""
        for fd in tuple(self._outputs):
            for _ in range(_LAST_READS):
                if not self._read_output(fd):
                    break
            if fd in self._outputs:
                self._close_output(fd)
        self._settle_end()

    def _settle_end(self) -> None:
        if self._tree_gone and not self._outputs and self.exited is None:
            self._finish()

    def _finish(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
        if self._sink is not None:
            self._sink.close()
        for fd in tuple(self._copies):
            self._drop_copy(fd)
        for fd in {self.terminal, self.input if self.input is not None else -1} - {-1}:
            os.close(fd)
        self.terminal, self.input = -1, None
        self.exited = self._build_exited()
        self._record_end()

    def _build_exited(self) -> Exited:
        assert self._status is not None and self.started is not None
        if self.started.error:
            return Exited(exits.START_FAILED, self._died_at, error=self.started.error)
        message = exits.read_message(self._paths, self.spec, failed=self._status != 0)
        if self._over_limit == "pids":
            message = message or f"killed: more than {self._sandbox.pod.limits.pids} processes and threads"
        killed = self._sandbox.was_oom_killed(self.spec.name) or self._over_limit == "memory"
        exited = exits.build_exited(self._status, self._died_at, message, oom_killed=killed)
        return replace(exited, memory=self._memory)

    def _record_end(self) -> None:
        """Writes the exit. On a full disk this is retried, and nobody is notified before it is on disk."""
        assert self.exited is not None
        path = self._paths.exited(self.spec.name, self.spec.attempt)
        if not self._write(path, encode(self.exited)):
            self._make_room()
            if not self._write(path, encode(self.exited)):
                self._loop.call_after(_RETRY_SECONDS, self._record_end)
                return
        self._on_exited(self)

    def _make_room(self) -> None:
        """Deletes what matters less than the exit: older log files, and the spec, which is no longer needed."""
        if self._sink is not None:
            self._sink.free_space()
        with contextlib.suppress(OSError):
            os.unlink(self._paths.spec(self.spec.name, self.spec.attempt))

    def _write(self, path: str, content: bytes) -> bool:
        try:
            write_whole(path, content)
        except OSError as error:
            launch.write_log(f"cannot write {path}: {error}")
            return False
        return True


def _make_message_file(path: str) -> None:
    """Writable for every user, because the program may run as any; the Pod directory keeps others out."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    os.fchmod(handle, 0o666)
    os.close(handle)


def _count_waiting(pipe: int) -> int:
    """How many bytes can be read now."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def enlarge(pipe: int, size: int) -> None:
    """Enlarges a pipe as far as permitted: the total per user is limited, and the default size works too."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


def _get_machine_pid(sandbox: Sandbox, pid: int) -> int:
    """The machine's pid of a child of this shim."""
    if not sandbox.owns_pids:
        return pid
    own = int(os.readlink("/proc/self"))
    return next((child for child in list_children(own) if read_inner_pid(child) == pid), 0)
