"""What the processes below this one use, from /proc: for machines and users without control groups.

The shim keeps the machine's /proc, so the pids here are the machine's, also when the shim is PID 1 of a namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    """As the machine counts."""
    local: int
    """As the shim counts, which is what fork told it."""
    parent: int
    cpu_ns: int
    rss_bytes: int


def list_processes() -> list[Process]:
    """All that descend from this process; orphans too, because they became its children."""
    root = int(os.readlink("/proc/self"))
    return list(_walk(root))


def _walk(parent: int) -> Iterator[Process]:
    for pid in _read_children(parent):
        process = _read_process(pid, parent)
        if process is not None:
            yield process
            yield from _walk(pid)


def _read_children(pid: int) -> list[int]:
    """Of all its threads: whichever started the child is its parent."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as stream:
                found += map(int, stream.read().split())
    except OSError:
        return found
    return found


def _read_process(pid: int, parent: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat") as stream:
            fields = stream.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/status") as stream:
            spaces = next((line for line in stream if line.startswith("NSpid:")), "")
    except OSError:
        return None
    # Fields 14 to 17 (own and waited-for children, user and system) and 24, counted from 3 here.
    ticks = sum(map(int, fields[11:15]))
    return Process(pid, int(spaces.split()[-1]) if spaces else pid, parent, ticks * _TICK_NS, int(fields[21]) * _PAGE)
