"""Who a process is, who its descendants are, and killing what belongs to a container or a Pod.

Every process of a container carries `TOKEN=<Pod uid>/<container>/<attempt>` in its environment, from the exec of its
ancestor on. With the session id and the process tree that tells whose it is, even after it has detached itself
(setsid, double fork). A control group or a pid namespace knows better, where there is one; this is for the rest.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable

from trainmaster.shim.protocol import ProcessIdentity, read_whole

TOKEN = "TRAINMASTER_CONTAINER_ID"
_MARK = TOKEN.encode() + b"="


def make_token(uid: str, container: str, attempt: int) -> str:
    return f"{uid}/{container}/{attempt}"


def read_boot_id() -> str:
    return read_whole("/proc/sys/kernel/random/boot_id").decode().strip()


def read_start_ticks(pid: int) -> int | None:
    """None: no such process. One that has ended and is not waited for counts as gone."""
    found = _read_stat(pid)
    return None if found is None or found[0] == b"Z" else int(found[19])


def read_identity() -> ProcessIdentity:
    """Of this process, as the machine sees it: /proc is the machine's even inside a pid namespace."""
    pid = int(os.readlink("/proc/self"))
    return ProcessIdentity(pid, read_start_ticks(pid) or 0, read_boot_id())


def is_alive(who: ProcessIdentity) -> bool:
    return who.boot_id == read_boot_id() and read_start_ticks(who.pid) == who.start_ticks


def list_children(pid: int) -> list[int]:
    """Of all its threads: whichever started the child is its parent."""
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


def find_token(pid: int) -> str:
    """Empty when it carries none, or may not be looked at."""
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
    """The number that the process has in its own, innermost pid namespace; 0 when it is gone."""
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
    """SIGKILL to whatever carries a token of these Pods, until a look finds nothing more. How many there were.

    `wait` lets the caller reap between two looks. Only for Pods whose shim is dead: it does not spare anybody.
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
    """A kernel without CONFIG_PROC_CHILDREN."""
    stats = ((child, _read_stat(child)) for child in _list_pids())
    return [child for child, stat in stats if stat is not None and int(stat[1]) == pid]


def _list_pids() -> Iterable[int]:
    own = int(os.readlink("/proc/self"))
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def _read_stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/pid/stat from the third on: state, ppid, pgrp, session, ... The name before may hold anything."""
    try:
        return read_whole(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
