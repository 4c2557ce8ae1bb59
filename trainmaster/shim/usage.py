"""Measures what the processes below this one use, from /proc, for use without control groups.

The shim keeps the machine's /proc, so pids here are the machine's, even if the shim is PID 1 of a namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512
"""Unit of st_blocks."""
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    pid: int
    """The machine's pid."""
    local: int
    """The pid in the shim's namespace, as returned by fork."""
    parent: int
    cpu_ns: int
    rss_bytes: int
    threads: int = 1
    shared_bytes: int = 0
    """The part of it that is shared memory."""
    is_stopped: bool = False
    """By a signal or a debugger."""


def list_processes() -> list[ProcessUsage]:
    """All descendants of this process, including orphans, which became its children."""
    return list(_walk(int(os.readlink("/proc/self"))))


def measure_unnamed(processes: Iterable[ProcessUsage], *, own_ipc: bool) -> int:
    """Shared memory that is in no directory and need not be mapped: memfds that a process holds open, each counted
    once, and with `own_ipc` the System V segments of this process's IPC namespace."""
    found: dict[tuple[int, int], int] = {}
    for process in processes:
        for status in _list_memfds(process.pid):
            found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sum(found.values()) + (_measure_segments() if own_ipc else 0)


def _list_memfds(pid: int) -> Iterator[os.stat_result]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return  # it ended
    for name in names:
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                yield os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed meanwhile


def _measure_segments() -> int:
    try:
        with open("/proc/sysvipc/shm") as stream:
            head, *lines = (line.split() for line in stream)
    except OSError:
        return 0  # not supported by the kernel
    columns = [head.index(name) for name in ("rss", "swap")]
    return sum(int(line[column]) for line in lines for column in columns)


def _walk(root: int) -> Iterator[ProcessUsage]:
    """Parents before their children. Not recursive, because a program controls the depth of its tree."""
    todo = [(child, root) for child in reversed(_read_children(root))]
    while todo:
        pid, parent = todo.pop()
        process = _read_process(pid, parent)
        if process is not None:
            yield process
            todo += [(child, pid) for child in reversed(_read_children(pid))]


def _read_children(pid: int) -> list[int]:
    """Children of all threads of a process."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as stream:
                found += map(int, stream.read().split())
    except OSError:
        return found
    return found


def _read_process(pid: int, parent: int) -> ProcessUsage | None:
    try:
        with open(f"/proc/{pid}/stat") as stream:
            fields = stream.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/status") as stream:
            status = dict(line.split(":", 1) for line in stream if line.startswith(("NSpid:", "RssShmem:")))
    except OSError:
        return None
    # Fields 14 to 17 (user and system time, own and of waited-for children), 20 and 24; the list starts at field 3.
    ticks = sum(map(int, fields[11:15]))
    local = int(status["NSpid"].split()[-1]) if "NSpid" in status else pid
    shared = int(status["RssShmem"].split()[0]) * 1024 if "RssShmem" in status else 0
    rss, threads, is_stopped = int(fields[21]) * _PAGE, int(fields[17]), fields[0] in ("T", "t")
    return ProcessUsage(pid, local, parent, ticks * _TICK_NS, rss, threads, shared, is_stopped)
