"""`Namespaces`: a network, processes, mounts and cgroups of their own for a cluster with a real node.

The test stays outside. The first process inside (`tests/kube/inside.py`) prepares the network and forwards ports: a
port that `open_port` gave out is answered on this machine's loopback address by whatever listens on the same port of
the loopback address inside, so every URL is the same on both sides. Nothing of the machine is changed, and everything
inside ends with the first process, which ends with us.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.kube.processes import die_with_parent

CGROUPS = Path("/sys/fs/cgroup")
ADDRESS = "10.200.0.1"
"""Of the node, inside; the same in every cluster, because each has a network of its own."""
_PREFIX = "trainmaster-node-"
_ROOT = Path(__file__).resolve().parents[2]
_END_SECONDS = 10


class NoNamespaces(Exception):
    """This machine or user cannot have them; the text says why."""


def check_machine() -> None:
    if os.geteuid() != 0:
        raise NoNamespaces("real Pods need root")
    for program in ("unshare", "nsenter", "mount"):
        if not shutil.which(program):
            raise NoNamespaces(f"real Pods need {program}")


class Namespaces:
    def __init__(self, work: Path, busybox: Path) -> None:
        self._work = work
        self._busybox = busybox
        self._folders: list[Path] = []
        self._outer: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.pid = 0
        """The first process inside."""

    def start(self) -> None:
        check_machine()
        self._folders = _make_cgroups()
        ours, theirs = socket.socketpair()
        command = ["unshare", "--mount", "--cgroup", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        command += ["--propagation", "private", sys.executable, "-m", "tests.kube.inside"]
        command += [str(theirs.fileno()), str(self._work), str(self._busybox), ADDRESS]
        with (self._work / "inside.log").open("wb") as log:
            self._outer = subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                preexec_fn=self.join,
            )
        theirs.close()
        self._control = ours
        if ours.recv(1) != b"+":
            text = (self._work / "inside.log").read_text(errors="replace")[-2000:]
            raise NoNamespaces(f"namespaces cannot be had: {text.strip()}")
        self.pid = int(Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text())

    def open_port(self) -> int:
        """A port that is free on this machine, forwarded from now on."""
        assert self._control is not None
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            port: int = listener.getsockname()[1]
            socket.send_fds(self._control, [b"p"], [listener.fileno()])
            assert self._control.recv(1) == b"+"
        return port

    def enter_network(self) -> list[str]:
        """What stands before a command that needs only the network inside. Its pid and files are those outside."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def enter(self) -> list[str]:
        """What stands before a command that runs wholly inside."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--cgroup", "--net", "--pid", "--"]

    def join(self) -> None:
        """In a child before it becomes a command of `enter`: it belongs to our cgroups and ends with us."""
        die_with_parent()
        for folder in self._folders:
            # In cgroup v2 only leaves have processes, and the first process has made one for itself.
            leaf = folder / "init" if (folder / "init").exists() else folder
            (leaf / "cgroup.procs").write_text(str(os.getpid()))

    def stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._outer is not None:
            self._outer.kill()
            self._outer.wait()
        _remove(self._folders)
        self._folders = []


# ---- cgroups -----------------------------------------------------------------


def list_hierarchies() -> list[tuple[Path, str]]:
    """(folder, mount options) of cgroup v1; empty on a machine that has only v2."""
    found = []
    ignored = {"rw", "ro", "relatime", "nosuid", "nodev", "noexec"}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup":
            names = [name for name in options.split(",") if name not in ignored]
            own = ["none"] if any(name.startswith("name=") for name in names) else []
            found.append((Path(where), ",".join([*own, *names])))
    return found


def _make_cgroups() -> list[Path]:
    """One below ours in each hierarchy: what limits us limits the node too. Each is the root of what is inside."""
    folders = []
    for where, options in list_hierarchies() or [(CGROUPS, "")]:
        parent = _find_own(where, options.split(",")[-1])
        _remove_stale(parent)
        folder = parent / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
        folder.mkdir(parents=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists() and not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())
        folders.append(folder)
    return folders


def _find_own(where: Path, controller: str) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return where / path.lstrip("/")
    return where


def _remove_stale(parent: Path) -> None:
    """Of test runs that were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        if not Path(f"/proc/{folder.name.removeprefix(_PREFIX).split('-')[0]}").exists():
            _remove_tree(folder)


def _remove(folders: Sequence[Path]) -> None:
    """Processes that were killed leave their cgroups a moment later."""
    end = time.monotonic() + _END_SECONDS
    while time.monotonic() < end:
        for folder in folders:
            _remove_tree(folder)
        if not any(folder.exists() for folder in folders):
            return
        time.sleep(0.05)


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
