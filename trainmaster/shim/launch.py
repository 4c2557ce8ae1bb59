"""Starts a program in a forked child: descriptors, session, sandbox, exec; and explains why a start failed.

The child reports through a pipe that closes on exec: end of file means that the program runs, anything else is the
reason why it does not. The texts are those of a container runtime, because users search for them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import termios
from collections.abc import Callable
from typing import NoReturn

from trainmaster.shim.loop import set_signal
from trainmaster.shim.protocol import ContainerSpec
from trainmaster.shim.sandbox.build import SandboxError
from trainmaster.shim.sandbox.linux import set_parent_death_signal
from trainmaster.shim.warm import conditions

IGNORED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)
"""By zygote and shim. The last two Python needs."""


_OOM_SCORE = 900
"""Out of 1,000: when the machine runs out of memory, programs in Pods are killed before the server and its shims."""


class ExecError(Exception):
    """The program cannot be executed."""


def fork_program(
    spec: ContainerSpec,
    stdio: tuple[int, int, int],
    enter: Callable[[], None],
    *,
    tty: bool,
    fork: Callable[[], int] = os.fork,
) -> tuple[int, int]:
    """Returns (pid, reading end of the report pipe). The caller's descriptors stay open; the child gets `stdio` as 0, 1
    and 2."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    try:
        pid = fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        _become(spec, stdio, enter, tty, writer, parent)
    os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


def _become(
    spec: ContainerSpec, stdio: tuple[int, int, int], enter: Callable[[], None], tty: bool, report: int, parent: int
) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        if tty:
            fcntl.ioctl(stdio[0], termios.TIOCSCTTY, 0)
        _arrange(stdio)
        reset_signals()
        _raise_oom_score()
        enter()
        # After changing the user, which clears it. In a pid namespace the kernel does this anyway.
        set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(137)
        if conditions.is_asked(spec):
            obstacle = conditions.find_obstacle(spec)
            if not obstacle:
                raise conditions.BecomeProgram(spec, report)
            conditions.write_note(report, f"started cold: {obstacle}")
        _execute(spec)
    except conditions.BecomeProgram:
        raise  # unwinds everything that belongs to the shim
    except BaseException as error:  # noqa: BLE001 - whatever it was: the shim must hear of it, this process ends
        try:
            os.write(report, describe(error, spec).encode(errors="replace")[:4096])
        finally:
            os._exit(127)


def _arrange(stdio: tuple[int, int, int]) -> None:
    """Moves descriptors to 0, 1 and 2, through copies with higher numbers: a source may itself be one of the three."""
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in stdio]
    for number, fd in enumerate(copies):
        os.dup2(fd, number)


def arrange_signals() -> None:
    """Called once in the zygote: resets inherited signal handling, and ignores requests to terminate.

    A shim exits when told so through its socket: a signal to all processes must not lose exit codes.
    """
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            set_signal(number, signal.SIG_IGN if number in IGNORED else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _raise_oom_score() -> None:
    """Raises the OOM score before dropping privileges, so that the program cannot lower it. Children inherit it."""
    try:
        handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # no /proc here, or no permission
    try:
        os.write(handle, str(_OOM_SCORE).encode())
    except OSError:
        return
    finally:
        os.close(handle)


def reset_signals() -> None:
    """Undoes the changes of zygote and shim."""
    for number in (*IGNORED, signal.SIGCHLD):
        set_signal(number, signal.SIG_DFL)


def _execute(spec: ContainerSpec) -> NoReturn:
    program = spec.argv[0]
    if "/" in program:
        os.execve(program, spec.argv, spec.env)
    found: OSError | None = None
    for folder in spec.env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{folder or '.'}/{program}", spec.argv, spec.env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and (found is None or error.errno != errno.EACCES):
                found = error
    if found is not None:
        raise found
    raise ExecError(f'exec: "{program}": executable file not found in $PATH')


def describe(error: BaseException, spec: ContainerSpec) -> str:
    if isinstance(error, ExecError | SandboxError):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        text = os.strerror(error.errno).lower()
        where = error.filename if isinstance(error.filename, str) else spec.argv[0]
        return f'exec: "{where}": {text}'
    return f"{type(error).__name__}: {error}"


def open_stdin() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


_said = [os.devnull]


def set_log(path: str) -> None:
    _said[:] = [path]


def write_log(text: str) -> None:
    """Writes a line to the shim's own log."""
    try:
        handle = os.open(_said[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # the disk is full or the directory gone: there is nowhere to report it
    try:
        os.write(handle, text.rstrip("\n").encode(errors="replace") + b"\n")
    except OSError:
        return
    finally:
        os.close(handle)
