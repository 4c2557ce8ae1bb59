"""Finds out which Pod, or which foreign program, a process on a GPU belongs to.

A process belongs to a Pod if the Pod's shim is one of its ancestors: the shim is the parent of all orphans in the Pod,
so a process cannot leave it, nor pretend to be in it.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from trainmaster.node.shims.pod_directory import find_pod_by_shim
from trainmaster.shim.processes import list_ancestors, read_start_ticks
from trainmaster.shim.protocol import SandboxSpec

_TRIES = 3
"""A parent that ends while ancestors are being listed cuts the list short."""


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A process that computes on a GPU."""

    pid: int
    text: str
    """For messages: "process 4242 (python) of bob"."""
    pod: tuple[str, str, str] | None = None
    """Namespace, name and uid of its Pod; None for a foreign process."""


class GpuUsers:
    """`pods`: the directory of all Pods of this server; None for a caller that has none."""

    def __init__(self, pods: Path | None = None) -> None:
        self._pods = pods

    def find_user(self, pid: int) -> GpuUser | None:
        """None if the process has ended. To be called after the process was seen: Pods are looked up now, so that one
        that has just started is found, and processes of one that has just ended are gone."""
        found = self._find_pod(pid)
        if not is_running(pid):
            return None
        if found is None:
            return GpuUser(pid, describe_process(pid))
        text = f"{_name_process(pid)} of Pod {found.namespace}/{found.name}"
        return GpuUser(pid, text, (found.namespace, found.name, found.uid))

    def is_running(self, pid: int) -> bool:
        return is_running(pid)

    def _find_pod(self, pid: int) -> SandboxSpec | None:
        for _ in range(_TRIES if self._pods is not None else 0):
            ancestors = list_ancestors(pid)
            found = find_pod_by_shim(self._pods, ancestors) if self._pods is not None and ancestors else None
            if found is not None or not ancestors or ancestors[-1] == 1:
                return found
        return None


def is_running(pid: int) -> bool:
    """Also for processes that /proc hides from this user. A zombie is gone: the driver was seen to list it for another
    160 ms."""
    if os.path.exists(f"/proc/{pid}"):
        return read_start_ticks(pid) is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def describe_process(pid: int) -> str:
    """ "process 4242 (python) of bob"; less where less can be read."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return f"process {pid}"
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    return f"{_name_process(pid)} of {user}"


def _name_process(pid: int) -> str:
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"
