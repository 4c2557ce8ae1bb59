"""Warm workers for torchrun: its agent runs unchanged, but the workers that it starts are forks.

Before the agent starts, while there is one thread, a spawner is forked from the same warm interpreter. The method with
which torch's agent starts a worker (`SubprocessHandler._popen`) is replaced by one that asks the spawner. If torch has
no such method, or a worker cannot start warm (`conditions.find_obstacle`), the worker is started normally. Only the
spawner signals and reaps workers, so a pid is never that of another process. It ends with the agent.
"""

from __future__ import annotations

import inspect
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainmaster.shim import wire
from trainmaster.shim.loop import get_monotonic
from trainmaster.shim.protocol import ContainerSpec
from trainmaster.shim.warm import conditions

_HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
_AGENTS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Ignored by the spawner, which is in the agent's process group; its workers have their own sessions."""
_PATIENCE = 0.05


def find_handler(command: conditions.Command) -> Any | None:
    """torch's class that starts workers, if this command is its agent and the class is as expected."""
    name = os.path.basename(command.target) if command.kind == "script" else command.target
    handler = getattr(sys.modules.get(_HANDLER), "SubprocessHandler", None)
    if name not in _AGENTS or handler is None:
        return None
    found = getattr(handler, "_popen", None)
    return (
        handler if found is not None and list(inspect.signature(found).parameters) == ["self", "args", "env"] else None
    )


def fork_spawner(handler: Any, spec: ContainerSpec) -> ContainerSpec | None:
    """Returns None in the agent, and the program to run in a worker; does not return in the spawner."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            ours.close()
            found = _serve(theirs, spec)
        except BaseException:  # noqa: BLE001 - the agent is gone; nothing may return into its program
            os._exit(1)
        if found is None:
            os._exit(0)
        return found
    theirs.close()
    handler._popen = _build_popen(handler._popen, Spawner(ours), spec)
    return None


def _build_popen(plain: Callable[..., object], spawner: Spawner, spec: ContainerSpec) -> Callable[..., object]:
    def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> object:
        wanted = replace(spec, argv=tuple(args), env=dict(env), directory=os.getcwd())
        if conditions.find_obstacle(wanted):
            return plain(self, args, env)
        streams = [stream.fileno() if stream else number for number, stream in ((1, self._stdout), (2, self._stderr))]
        return spawner.start(wanted, streams)

    return popen


class Spawner:
    """The agent's side of the spawner."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.RLock()
        self._codes: dict[int, int] = {}

    def start(self, spec: ContainerSpec, streams: list[int]) -> WorkerProcess:
        with self._lock:
            wire.send(self._link, {"argv": spec.argv, "env": spec.env, "directory": spec.directory}, streams)
            pid = 0
            while not pid:
                pid = self._take()
            return WorkerProcess(self, pid, spec.argv)

    def _take(self) -> int:
        """Reads the next message. Returns the pid of a started worker, or 0 for other messages."""
        message, _ = wire.receive(self._link)
        if message is None:
            raise ChildProcessError("the process that starts workers has ended")
        if "code" in message:
            self._codes[int(message["pid"])] = int(message["code"])
            return 0
        return int(message["pid"])

    def find_code(self, pid: int, seconds: float = 0.0) -> int | None:
        with self._lock:
            while pid not in self._codes and select.select([self._link], [], [], seconds)[0]:
                self._take()
            return self._codes.get(pid)

    def signal(self, pid: int, number: int) -> None:
        with self._lock:
            wire.send(self._link, {"pid": pid, "signal": number})


class WorkerProcess:
    """The part of `subprocess.Popen` that applies to a process with inherited streams."""

    stdin = stdout = stderr = None

    def __init__(self, spawner: Spawner, pid: int, args: tuple[str, ...]) -> None:
        self._spawner = spawner
        self.pid = pid
        self.args = args
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._spawner.find_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else get_monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and timeout is not None and get_monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            # Short, because sending a signal has to wait meanwhile.
            self.returncode = self._spawner.find_code(self.pid, _PATIENCE)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            self._spawner.signal(self.pid, int(sig))

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _serve(link: socket.socket, spec: ContainerSpec) -> ContainerSpec | None:
    """The spawner's loop. Returns in a worker, or with None when the agent is gone."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    alive: set[int] = set()
    while True:
        ready = select.select([link.fileno(), reader], [], [])[0]
        if reader in ready:
            os.read(reader, 4096)
            _reap(link, alive)
        if link.fileno() not in ready:
            continue
        message, fds = wire.receive(link)
        if message is None:
            return None
        if "signal" in message:
            if int(message["pid"]) in alive:
                os.kill(int(message["pid"]), int(message["signal"]))
            continue
        pid = os.fork()
        if pid == 0:
            return _become_worker(message, fds, spec)
        wire.close_all(fds)
        alive.add(pid)
        wire.send(link, {"pid": pid})


def _reap(link: socket.socket, alive: set[int]) -> None:
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        alive.discard(pid)
        wire.send(link, {"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _become_worker(message: wire.Message, fds: list[int], spec: ContainerSpec) -> ContainerSpec:
    signal.set_wakeup_fd(-1)
    for number in (*_IGNORED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    for target, fd in enumerate(fds, 1):
        os.dup2(fd, target)
    os.chdir(str(message["directory"]))
    return replace(spec, argv=tuple(message["argv"]), env=dict(message["env"]), directory=str(message["directory"]))
