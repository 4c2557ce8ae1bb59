"""Remote start within a gang: `program.py serve` in each worker, `program.py start HOST COMMAND...` as rsh agent.

Run by path inside Pods; imports nothing of ours. The Pods of a gang share a directory (TRAINMASTER_GANG_DIR) that no
other Pod sees. A worker listens there on a socket named after its host name; the agent sends it the command together
with its own three standard streams (SCM_RIGHTS), so output need not be copied. The exit code is sent back. Access to
the directory is the only authentication, and nothing else is listened on.

Options of ssh are accepted and ignored. A command for the agent's own host is executed in place. For readiness probes,
the server also listens on sshd's port (2222) and closes connections immediately.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

DIRECTORY = "TRAINMASTER_GANG_DIR"
PORT = 2222
_TRIES, _PAUSE_SECONDS = 2400, 0.05
"""Two minutes for a worker that is still starting; mpirun itself has no limit."""
_WITH_VALUE = frozenset("bcDEeFIiJLlmOopQRSWw")
"""Options of ssh that take a value."""


def get_path(directory: str, host: str) -> str:
    return f"{directory}/{host.split('.', 1)[0]}.start"


def open_unix(path: str, use: Callable[[socket.socket, str], None]) -> socket.socket:
    """Binds or connects through a descriptor of the directory: the path may exceed the limit of Unix addresses."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        use(link, f"/proc/self/fd/{place}/{os.path.basename(path)}")
    except BaseException:
        link.close()
        raise
    finally:
        os.close(place)
    return link


# The worker's side


class RemoteStartServer:
    def __init__(self, directory: str, host: str, port: int = PORT) -> None:
        self._path = get_path(directory, host)
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, socket.socket] = {}
        """Process -> the agent that waits for it."""

    def open(self) -> None:
        if os.path.lexists(self._path):
            os.unlink(self._path)  # left by an earlier attempt
        starts = open_unix(self._path, lambda link, path: link.bind(path))
        # Only the gang can access the directory, and its Pods may run as different users.
        os.chmod(self._path, 0o777)
        starts.listen(64)
        self._selector.register(starts, selectors.EVENT_READ, self._accept)
        probes = socket.socket(socket.AF_INET)
        # If Pods share a network, all workers of a machine use the same port; any of them may answer a probe.
        probes.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probes.bind(("", self._port))
            probes.listen(16)
            self._selector.register(probes, selectors.EVENT_READ, self._answer_probe)
        except OSError as error:
            probes.close()
            sys.stderr.write(f"remote start: port {self._port} is not answered: {error.strerror}\n")
        ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, _stop)
        self._selector.register(ended, selectors.EVENT_READ, self._reap)

    def run(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    key.data(key.fileobj)
        finally:
            os.unlink(self._path)

    def _answer_probe(self, listener: socket.socket) -> None:
        listener.accept()[0].close()

    def _accept(self, listener: socket.socket) -> None:
        link, _ = listener.accept()
        self._selector.register(link, selectors.EVENT_READ, self._receive)

    def _receive(self, link: socket.socket) -> None:
        try:
            content, streams, _, _ = socket.recv_fds(link, 1 << 20, 3)
        except OSError:
            content, streams = b"", []
        if not content or len(streams) != 3:
            # The agent is gone: kill what it started, as sshd does.
            for pid in [pid for pid, owner in self._running.items() if owner is link]:
                del self._running[pid]
                os.killpg(pid, signal.SIGHUP)
            self._drop(link)
            return
        try:
            process = _start(json.loads(content), streams)
        except OSError as error:
            os.write(streams[2], f"remote start: {error.strerror}\n".encode())
            _send(link, 127)
        else:
            self._running[process] = link
        finally:
            for stream in streams:
                os.close(stream)

    def _reap(self, pipe: int) -> None:
        os.read(pipe, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            link = self._running.pop(pid, None)
            if link is not None:
                code = os.waitstatus_to_exitcode(status)
                _send(link, code if code >= 0 else 128 - code)

    def _drop(self, link: socket.socket) -> None:
        self._selector.unregister(link)
        link.close()


def _start(request: dict[str, list[str]], streams: Sequence[int]) -> int:
    """Passes one string to the user's shell, as sshd does."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", " ".join(request["command"])],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,
    )
    # The server reaps it, not this object.
    process.returncode = 0
    return process.pid


def _send(link: socket.socket, code: int) -> None:
    try:
        link.send(json.dumps({"code": code}).encode())
    except OSError:
        return  # the agent is gone


def _stop(*_: object) -> None:
    raise SystemExit(0)


# The launcher's side


def split_arguments(argv: Sequence[str]) -> tuple[str, list[str]]:
    """(host, command) from the arguments of ssh."""
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            rest.pop(0)
    if len(rest) < 2:
        raise SystemExit("remote start: a host and a command are needed")
    return rest[0].rpartition("@")[2], rest[1:]


def start(directory: str, own_host: str, argv: Sequence[str]) -> int:
    host, command = split_arguments(argv)
    if host.split(".", 1)[0] in (own_host.split(".", 1)[0], "localhost"):
        os.execv("/bin/sh", ["/bin/sh", "-c", " ".join(command)])
    link = _connect(get_path(directory, host), host)
    socket.send_fds(link, [json.dumps({"command": command}).encode()], [0, 1, 2])
    answer = link.recv(4096)
    if not answer:
        sys.stderr.write(f"remote start: {host} ended\n")
        return 255
    return int(json.loads(answer)["code"])


def _connect(path: str, host: str) -> socket.socket:
    for _ in range(_TRIES):
        try:
            return open_unix(path, lambda link, place: link.connect(place))
        except OSError:
            time.sleep(_PAUSE_SECONDS)
    raise SystemExit(f"remote start: {host} does not answer; does its Pod run?")


def main(argv: Sequence[str]) -> int:
    directory = os.environ.get(DIRECTORY, "")
    host = os.environ.get("HOSTNAME") or socket.gethostname()
    if not directory:
        sys.stderr.write(f"remote start: {DIRECTORY} is not set: this is not a Pod of an MPI job\n")
        return 255
    if argv[:1] == ["serve"]:
        server = RemoteStartServer(directory, host)
        server.open()
        server.run()
    if argv[:1] == ["start"]:
        return start(directory, host, argv[1:])
    sys.stderr.write("usage: program.py serve | start [ssh options] HOST COMMAND...\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
