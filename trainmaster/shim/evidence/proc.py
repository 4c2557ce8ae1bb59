"""States of processes from /proc: what they wait for, and what they use between two looks.

A program that waits for the disk (D), is stopped (T) or computes (R) can be told apart without asking it. Everything
here is read as the Pod's user, so what that user may not see is missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_THREADS = 256
_MOST_TEXT = 200
_MAPS_BYTES = 1 << 20
_FILE_BYTES = 1 << 16

Facts: TypeAlias = dict[str, Any]
"""What is known of something, as it will be JSON."""


@dataclass(frozen=True, slots=True)
class ThreadLook:
    state: str
    """One letter, as in ps: R, S, D, T, t, Z."""
    wchan: str
    """The function of the kernel in which it waits; "" if it does not, or if that cannot be seen."""


@dataclass(frozen=True, slots=True)
class ProcessLook:
    pid: int
    parent: int
    name: str
    command: str
    ticks: int
    """CPU time of all threads so far."""
    switches: int
    """How often its threads gave up the CPU themselves."""
    rss: int
    count: int
    """Of its threads, of which `threads` has not more than a limit."""
    threads: dict[int, ThreadLook] = field(default_factory=dict)

    @property
    def main(self) -> ThreadLook:
        return self.threads.get(self.pid, ThreadLook("", ""))


def look(pid: int) -> ProcessLook | None:
    """None if there is no such process."""
    fields = _read_stat(f"/proc/{pid}")
    if fields is None:
        return None
    name, rest = fields
    threads: dict[int, ThreadLook] = {}
    switches = 0
    for tid in _list_numbers(f"/proc/{pid}/task")[:_MOST_THREADS]:
        place = f"/proc/{pid}/task/{tid}"
        found = _read_stat(place)
        if found is not None:
            threads[tid] = ThreadLook(found[1][0], _read_wchan(place))
            switches += _read_switches(place)
    command = " ".join(word for word in read_text(f"/proc/{pid}/cmdline", 4096).split("\0") if word)
    return ProcessLook(
        pid,
        parent=int(rest[1]),
        name=name[:_MOST_TEXT],
        command=command[:_MOST_TEXT],
        ticks=int(rest[11]) + int(rest[12]),
        switches=switches,
        rss=int(rest[21]) * _PAGE,
        count=int(rest[17]),
        threads=threads,
    )


def describe(first: ProcessLook, last: ProcessLook, seconds: float) -> Facts:
    """What changed between two looks that are `seconds` apart, and the state at the last one."""
    states: dict[str, int] = {}
    for thread in last.threads.values():
        states[thread.state] = states.get(thread.state, 0) + 1
    used = (last.ticks - first.ticks) / _TICKS
    return {
        "pid": last.pid,
        "parent": last.parent,
        "name": last.name,
        "command": last.command,
        "state": last.main.state,
        "waits_in": last.main.wchan,
        "threads": last.count,
        "states": states,
        "cpu_seconds": round(last.ticks / _TICKS, 2),
        "cpu_percent": round(100 * used / seconds) if seconds > 0 else 0,
        "switches": max(0, last.switches - first.switches),
        "rss": last.rss,
    }


def runs_python(pid: int) -> bool:
    """By its executable, or because it has loaded libpython."""
    try:
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("python", "pypy")):
            return True
    except OSError:
        return False
    return "/libpython" in read_text(f"/proc/{pid}/maps", _MAPS_BYTES)


def read_text(path: str, most: int = _FILE_BYTES) -> str:
    """At most so many bytes; "" if it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    content = b""
    try:
        while len(content) < most and (piece := os.read(handle, most - len(content))):
            content += piece
    except OSError:
        return content.decode(errors="replace")
    finally:
        os.close(handle)
    return content.decode(errors="replace")


def read_variables(pid: int) -> dict[str, str]:
    entries = (entry.partition("=") for entry in read_text(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, _, value in entries if name}


def _read_stat(place: str) -> tuple[str, list[str]] | None:
    """The name, and the fields from the third on."""
    head, found, tail = read_text(f"{place}/stat", 4096).rpartition(")")
    fields = tail.split()
    return (head.partition("(")[2], fields) if found and len(fields) > 21 else None


def _read_wchan(place: str) -> str:
    text = read_text(f"{place}/wchan", 128)
    return "" if text == "0" else text


def _read_switches(place: str) -> int:
    for line in read_text(f"{place}/status", 8192).splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def _list_numbers(folder: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []
