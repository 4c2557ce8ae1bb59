"""Starts, watches and signals the processes of Pods. The only module that touches processes.

A container is one process in a session of its own; its output goes straight into a file, so that it lives on when the
control plane dies. Its end is seen through a pidfd, also for processes that an earlier control plane started (those
are not our children: that they ended is seen, their exit code is not). Signals go to the whole process group, and
what is left of the group when its leader ends is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainmaster.node.launch import Launch, LaunchError
from trainmaster.node.launch.contract import START_ERROR


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended. `code` is None when it was not our child, and nobody can know."""

    code: int | None
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is: the pid alone is used again by the kernel."""

    pid: int
    start_ticks: int
    boot_id: str


OnExit = Callable[[Exit], None]

# Changes directory and becomes the program: posix_spawn cannot change directory itself on this Python.
_ENTER = 'cd "$0" && exec "$@"'


class Supervisor:
    """Entering does nothing; leaving lets go of all processes, which live on (design 11)."""

    def __init__(self) -> None:
        self._pidfds: dict[int, int] = {}

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        for pid in tuple(self._pidfds):
            self._forget(pid)

    def start(self, launch: Launch, log: int, on_exit: OnExit) -> Identity:
        """Spawns the process with `log` as its output. LaunchError when the machine refuses."""
        argv = ["/bin/sh", "-c", _ENTER, launch.directory, *launch.argv]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                dict(launch.env),
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD),
            )
        except OSError as error:
            raise LaunchError(START_ERROR, f"cannot start {launch.argv[0]}: {error.strerror}") from error
        self._watch(pid, on_exit)
        return Identity(pid, read_start_ticks(pid) or 0, read_boot_id())

    def adopt(self, who: Identity, on_exit: OnExit) -> bool:
        """Watches a process that an earlier control plane started; False when it is not there any more."""
        if who.boot_id != read_boot_id() or read_start_ticks(who.pid) != who.start_ticks:
            return False
        try:
            self._watch(who.pid, on_exit)
        except ProcessLookupError:
            return False
        return True

    def send(self, pid: int, *, force: bool) -> None:
        """To the whole group. One that is gone needs no signal."""
        if pid in self._pidfds:
            _signal_group(pid, signal.SIGKILL if force else signal.SIGTERM)

    def _watch(self, pid: int, on_exit: OnExit) -> None:
        pidfd = os.pidfd_open(pid)
        self._pidfds[pid] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._collect, pid, on_exit)

    def _collect(self, pid: int, on_exit: OnExit) -> None:
        """The leader has ended. While it is not reaped its pid stays taken, so the group signal cannot go astray."""
        pidfd = self._pidfds[pid]
        _signal_group(pid, signal.SIGKILL)
        exit = _reap(pidfd)
        self._forget(pid)
        on_exit(exit)

    def _forget(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)


def _reap(pidfd: int) -> Exit:
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    except ChildProcessError:
        return Exit(None)
    if result is None:
        return Exit(None)
    if result.si_code == os.CLD_EXITED:
        return Exit(result.si_status)
    return Exit(128 + result.si_status, result.si_status)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def read_start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/pid/stat; the name in field 2 may contain spaces and brackets. None: no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])


def read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
