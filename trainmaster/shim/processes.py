"""Identifies processes, lists their descendants, and kills those of a container or a Pod.

Every process of a container inherits `TOKEN=<Pod uid>/<container>/<attempt>` in its environment. Together with the
session id and the process tree it identifies the container, even of a process that has detached itself (setsid, double
fork). Used where there is neither a control group nor a pid namespace, which are more reliable.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable
from functools import cache

from trainmaster.shim.protocol import ProcessIdentity, read_whole

TOKEN = "TRAINMASTER_CONTAINER_ID"
_MARK = TOKEN.encode() + b"="


def make_token(uid: str, container: str, attempt: int) -> str:
    return f"{uid}/{container}/{attempt}"


@cache
def read_boot_id() -> str:
    return read_whole("/proc/sys/kernel/random/boot_id").decode().strip()


def read_start_ticks(pid: int) -> int | None:
    """None if there is no such process. A zombie counts as gone."""
    found = _read_stat(pid)
    return None if found is None or found[0] == b"Z" else int(found[19])


def read_identity() -> ProcessIdentity:
    """The identity of this process as the machine sees it: /proc is the machine's even inside a pid namespace."""
    pid = int(os.readlink("/proc/self"))
    return ProcessIdentity(pid, read_start_ticks(pid) or 0, read_boot_id())


def is_alive(who: ProcessIdentity) -> bool:
    return who.boot_id == read_boot_id() and read_start_ticks(who.pid) == who.start_ticks


def list_children(pid: int) -> list[int]:
    """Children of all threads of a process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in read_whole(f"/proc/{pid}/task/{thread}/children").split()]
    except ProcessLookupError:
        return found
    except FileNotFoundError:
        return _search_children(pid) if os.path.exists(f"/proc/{pid}") else found
    return found


def list_descendants(pid: int) -> list[tuple[int, int]]:
    """(process, its parent), parents before their children."""
    found: list[tuple[int, int]] = []
    todo = [(child, pid) for child in list_children(pid)]
    while todo:
        child, parent = todo.pop()
        found.append((child, parent))
        todo.extend((grandchild, child) for grandchild in list_children(child))
    return found


def list_ancestors(pid: int) -> list[int]:
    """Its parent first; empty if there is no such process."""
    found: list[int] = []
    while (stat := _read_stat(pid)) is not None and (parent := int(stat[1])) > 0:
        found.append(parent)
        pid = parent
    return found


def find_token(pid: int) -> str:
    """Empty if the process has none or may not be inspected."""
    try:
        environ = read_whole(f"/proc/{pid}/environ")
    except OSError:
        return ""
    for entry in environ.split(b"\0"):
        if entry.startswith(_MARK):
            return entry[len(_MARK) :].decode(errors="replace")
    return ""


def read_session(pid: int) -> int:
    found = _read_stat(pid)
    return int(found[3]) if found is not None else 0


def read_inner_pid(pid: int) -> int:
    """The pid in the process's own, innermost pid namespace; 0 if it is gone."""
    try:
        status = read_whole(f"/proc/{pid}/status")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid


def kill_quietly(pid: int, number: int = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_marked(uids: Collection[str], wait: Callable[[], None] | None = None, rounds: int = 20) -> int:
    """Sends SIGKILL to all processes with a token of these Pods until none is found. Returns how many there were.

    `wait` lets the caller reap between rounds. Only for Pods whose shim is dead, because no process is spared.
    """
    prefixes = tuple(f"{uid}/" for uid in uids)
    killed: set[int] = set()
    for _ in range(rounds):
        found = [pid for pid in _list_pids() if find_token(pid).startswith(prefixes) and _is_running(pid)]
        if not found:
            break
        killed.update(pid for pid in found if kill_quietly(pid))
        if wait is not None:
            wait()
    return len(killed)


def _is_running(pid: int) -> bool:
    found = _read_stat(pid)
    return found is not None and found[0] not in (b"Z", b"X")


def _search_children(pid: int) -> list[int]:
    """For kernels without CONFIG_PROC_CHILDREN."""
    stats = ((child, _read_stat(child)) for child in _list_pids())
    return [child for child, stat in stats if stat is not None and int(stat[1]) == pid]


def _list_pids() -> Iterable[int]:
    own = int(os.readlink("/proc/self"))
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def _read_stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/pid/stat from the third on: state, ppid, pgrp, session, ... The process name before them may
    contain anything."""
    try:
        return read_whole(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
