"""The sandbox of a Pod, as the shim sees it: built once, entered by every container, closed with the Pod.

`prepare_zygote` runs once in the zygote, `clone_flags` says how the zygote clones a shim, `build_pod` runs in the new
shim, `Sandbox.enter` in a forked child as the last thing before exec. The level stands in the spec and was chosen by
the node from what the probe found; nothing here falls back to a weaker level in silence: what cannot be built raises
`SandboxError`, and the Pod does not start.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from trainmaster.shim.protocol import PLAIN, ContainerSpec, Paths, SandboxSpec


class SandboxError(Exception):
    """The sandbox cannot be had as asked; the text is one sentence for the Pod's event."""


@dataclass(frozen=True, slots=True)
class Stats:
    cpu_ns: int
    rss_bytes: int
    pids: int


def prepare_zygote(root: str, level: str) -> None:
    """Once, at the start of the zygote, before any thread and before the first clone. `root` holds Pod directories."""


def clone_flags(pod: SandboxSpec) -> int:
    """What the zygote adds to clone3 (or unshares before fork) for the shim of this Pod."""
    return 0


class Sandbox:
    def __init__(self, paths: Paths, pod: SandboxSpec) -> None:
        self.paths = paths
        self.pod = pod

    @property
    def owns_pids(self) -> bool:
        """The shim is PID 1 of the Pod's own pid namespace: `kill(-1)` reaches the Pod and nothing else."""
        return False

    def enter(self, container: ContainerSpec) -> None:
        """In the forked child, just before exec: everything but the descriptors, the session and the signals."""
        _change_identity(container)
        os.chdir(container.directory)

    def join(self, container: ContainerSpec, pidfd: int) -> None:
        """In a forked child that becomes an `exec` in the running container whose main process `pidfd` is."""
        self.enter(container)

    def open_socket(self) -> socket.socket:
        """A TCP socket that lives in the Pod's network, neither bound nor connected."""
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    @property
    def connect_address(self) -> str:
        """Where a server inside the Pod is reached with such a socket."""
        return "127.0.0.1"

    def kill(self, container: str) -> bool:
        """SIGKILL to every process of the container, however it detached itself. False: not possible at this level."""
        return False

    def was_oom_killed(self, container: str) -> bool:
        return False

    def read_stats(self) -> Stats | None:
        """Of the whole Pod; None where only /proc can tell."""
        return None

    def write_hosts(self, lines: tuple[tuple[str, ...], ...]) -> None:
        """Rewrites /etc/hosts of the Pod in place."""

    def close(self) -> None:
        """Everything that `build_pod` made is gone. The processes of the Pod have ended before."""


def build_pod(paths: Paths, pod: SandboxSpec) -> Sandbox:
    if pod.level != PLAIN:
        raise SandboxError(f"isolation level {pod.level} is not available on this machine")
    return Sandbox(paths, pod)


def _change_identity(container: ContainerSpec) -> None:
    user, group = container.run_as_user, container.run_as_group
    if os.geteuid() == 0:
        if container.groups or user is not None:
            os.setgroups(container.groups)
        if group is not None or user is not None:
            os.setresgid(*[group if group is not None else (user or 0)] * 3)
        if user is not None:
            os.setresuid(user, user, user)
    elif user is not None and user != os.geteuid():
        raise SandboxError(f"runAsUser {user} needs a server that runs as root, or user namespaces")
