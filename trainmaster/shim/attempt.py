"""One attempt of one container inside its shim: begun once, its output drained, its end recorded.

Order on disk: the mark that it was begun (created exclusively, so that there is never a second process for it), then
what came of the start, then the end. The end is written after everything of the container is dead and its output is
in the log: who sees the end has seen all. What still holds the pipes open one second after that is not waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from trainmaster.shim import birth, endings, warm
from trainmaster.shim.log_sink import STDERR, STDOUT, LogSink
from trainmaster.shim.loop import Loop, Timer, get_monotonic, get_wall
from trainmaster.shim.processes import TOKEN, kill_quietly, list_children, make_token, read_inner_pid
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Exited, Paths, Started, encode, write_whole
from trainmaster.shim.sandbox.build import Sandbox

_PIECE = 1 << 16
_PIPE_BYTES = 1 << 18
_DRAIN_SECONDS = 1.0
_LAST_READS = 64
"""More than a full pipe or terminal needs; beyond that somebody is writing still."""
_RETRY_SECONDS = 1.0

_WINDOW_SECONDS = 0.25
_PUMP_SHARE = 0.2
"""Of one processor: what reading the output of a tenant's container may take."""
_PUMP_BYTES = 2 << 20
"""In a window: 8 MiB a second go to the disk."""


class AlreadyBegun(Exception):
    """This attempt was begun before: there is never a second process for it."""


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
        # Where memory is only watched, pages that a warm program shares with its zygote would be counted as its own.
        warm_key = "" if sandbox.needs_watch(spec.limits) else spec.warm
        self.spec = replace(spec, env={**spec.env, TOKEN: token}, warm=warm_key)
        self.token = token
        self.pid = 0
        """In the shim's own pid namespace."""
        self.session = 0
        self.started: Started | None = None
        self.exited: Exited | None = None
        self.terminal = -1
        """Our end of the pseudo terminal."""
        self.input: int | None = None
        """Where to write to its standard input, while somebody may still come and do so."""
        self._loop = loop
        self._paths = paths
        self._sandbox = sandbox
        self._window = (0.0, 0.0, 0)
        """When it began, and what the shim's work and the output had come to by then."""
        self._output_bytes = 0
        """Since when, and at how much processor time, the cost of reading its output is counted."""
        self._over_limit = ""
        """Of what it used too much: "memory", "pids"."""
        self._on_started = on_started
        self._on_exited = on_exited
        self._sink: LogSink | None = None
        self._mark = -1
        self._report = -1
        self._reason = b""
        self._outputs: dict[int, bytes] = {}
        self._copies: dict[int, bytes] = {}
        self._status: int | None = None
        self._died_at = 0.0
        self._drain: Timer | None = None
        self._tree_gone = False

    @property
    def running(self) -> bool:
        """Its main process is not reaped: the pid is certainly still its own."""
        return self.pid > 0 and self._status is None

    @property
    def dying(self) -> bool:
        """Its main process has ended, and it is not known yet that everything else of it has."""
        return self._status is not None and not self._tree_gone

    def claim(self) -> None:
        """Leaves the mark that it was begun. AlreadyBegun when it is there; OSError when it cannot be made."""
        path = self._paths.started(self.spec.name, self.spec.attempt)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise AlreadyBegun(f"attempt {self.spec.attempt} of {self.spec.name} was begun before") from None
        self._mark = handle
        os.write(handle, encode(Started(0, 0.0)))

    def begin(self) -> None:
        """After `claim`. What the machine refuses is recorded as a failed start."""
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
            self.pid, self._report = birth.fork_program(self.spec, stdio, enter, tty=self.spec.tty, fork=fork)
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
            stdin = birth.open_stdin()
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
        note, error = warm.split_report(self._reason)
        pid = _get_machine_pid(self._sandbox, self.pid)
        self.started = Started(pid, 0.0 if error else get_wall(), error, note)
        self.session = pid
        self._record_start(self.started)
        self._on_started(self)

    def _fail(self, error: str) -> None:
        """It could not even be forked."""
        self.started = Started(0, 0.0, error)
        self._record_start(self.started)
        self._on_started(self)
        self._tree_gone = True
        self._status, self._died_at = 0, get_wall()
        self._finish()

    def _record_start(self, started: Started) -> None:
        """Into the mark, by one call; a text that is longer than the mark's, so that nothing of it remains."""
        try:
            os.pwrite(self._mark, encode(started), 0)
        except OSError as error:
            birth.say(f"cannot record the start: {error}")
        finally:
            os.close(self._mark)
            self._mark = -1

    # Output

    def _pump(self, fd: int) -> None:
        """A tenant's program decides how much there is to read, and the shim is in no control group: it takes a rest
        when its own work has cost too much or the disk gets too much, and the program waits at its full pipe."""
        more = self._read_output(fd)
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
            self._loop.call_after(self._window[0] + _WINDOW_SECONDS - now, lambda: self._go_on(fd))

    def _go_on(self, fd: int) -> None:
        if fd in self._outputs:
            self._loop.add(fd, lambda _: self._pump(fd))

    def _read_output(self, fd: int) -> bool:
        """One piece, so that others get their turn. False when there is nothing more for now."""
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose last user has gone reports an I/O error
            data = b""
        if not data:
            self._close_output(fd)
            self._settle_end()
            return False
        assert self._sink is not None
        self._output_bytes += len(data)
        stream = self._outputs[fd]
        self._sink.feed(stream, data)
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
        """`fd` gets what the program writes from now on. A reader that does not keep up misses some of it."""
        os.set_blocking(fd, False)
        self._copies[fd] = stream
        self._loop.add(fd, lambda _: self._drop_copy(fd), 0)

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
        """To the main process and its group."""
        if not self.running:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Before setsid there is no such group yet; of a group that changed its user only the leader may be ours.
            kill_quietly(self.pid, number)

    def note_over_limit(self, what: str) -> None:
        """It uses more memory or pids than it may, and nobody but us enforces that."""
        self._over_limit = what
        self.signal(signal.SIGKILL)

    def note_death(self, status: int) -> None:
        self._status = status
        self._died_at = get_wall()
        self._read_report()

    def note_tree_gone(self) -> None:
        """Nothing of the container runs any more: what is still in the pipes is all there will be."""
        if self._tree_gone or self._status is None:
            return
        self._tree_gone = True
        self._drain = self._loop.call_after(_DRAIN_SECONDS, self._give_up_draining)
        self._settle_end()

    def _give_up_draining(self) -> None:
        """On a busy machine a second may pass before anything was read: what is in the pipes is taken still."""
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
            return Exited(endings.START_FAILED, self._died_at, error=self.started.error)
        message = endings.read_message(self._paths, self.spec, failed=self._status != 0)
        if self._over_limit == "pids":
            message = message or f"killed: more than {self._sandbox.pod.limits.pids} processes and threads"
        killed = self._sandbox.was_oom_killed(self.spec.name) or self._over_limit == "memory"
        return endings.build_exited(self._status, self._died_at, message, oom_killed=killed)

    def _record_end(self) -> None:
        """On a full disk the end is kept and tried again; nobody is told before it is on disk."""
        assert self.exited is not None
        path = self._paths.exited(self.spec.name, self.spec.attempt)
        if not self._write(path, encode(self.exited)):
            self._make_room()
            if not self._write(path, encode(self.exited)):
                self._loop.call_after(_RETRY_SECONDS, self._record_end)
                return
        self._on_exited(self)

    def _make_room(self) -> None:
        """What is worth less than the end: older pieces of the log, and the intent, which has been carried out."""
        if self._sink is not None:
            self._sink.free_space()
        with contextlib.suppress(OSError):
            os.unlink(self._paths.spec(self.spec.name, self.spec.attempt))

    def _write(self, path: str, content: bytes) -> bool:
        try:
            write_whole(path, content)
        except OSError as error:
            birth.say(f"cannot write {path}: {error}")
            return False
        return True


def _make_message_file(path: str) -> None:
    """Writable for whatever user the program runs as; the Pod directory around it keeps others out."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    os.fchmod(handle, 0o666)
    os.close(handle)


def enlarge(pipe: int, size: int) -> None:
    """As far as allowed: a user may own so many pipe pages and no more, and the default size works too."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


def _get_machine_pid(sandbox: Sandbox, pid: int) -> int:
    """The number that the machine has for a child of this shim."""
    if not sandbox.owns_pids:
        return pid
    own = int(os.readlink("/proc/self"))
    return next((child for child in list_children(own) if read_inner_pid(child) == pid), 0)
