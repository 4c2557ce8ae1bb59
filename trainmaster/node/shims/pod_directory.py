"""Reads the state of containers from a Pod directory: after a restart, and when an event of a shim was missed.

The files are authoritative (`trainmaster/shim/protocol.py`); the kernel knows whether the shim is alive. Reading is
fast, because a thousand Pods are read before the control plane is ready.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainmaster.shim.processes import is_alive, read_boot_id
from trainmaster.shim.protocol import Exited, Paths, ProcessIdentity, SandboxSpec, Started, decode

_FLOCK = struct.Struct("hhqqi4x")

_Kind = TypeVar("_Kind", SandboxSpec, ProcessIdentity, Started, Exited)


@dataclass(frozen=True, slots=True)
class FoundAttempt:
    """One attempt of a container. If only its spec exists, it has neither started nor exited."""

    container: str
    number: int
    started: Started | None = None
    exited: Exited | None = None

    @property
    def begun(self) -> bool:
        return self.started is not None

    @property
    def unfinished(self) -> bool:
        """It has started, and its exit is not on disk: it runs, or its exit will never be known."""
        return self.started is not None and self.exited is None


@dataclass(frozen=True, slots=True)
class FoundPod:
    """`alive`: the shim responds, and the unfinished attempts run. Otherwise they are lost."""

    uid: str
    alive: bool
    rebooted: bool
    """The shim belonged to an earlier boot of the machine."""
    pod: SandboxSpec | None
    attempts: tuple[FoundAttempt, ...]
    """By container and number."""

    def get_newest(self) -> dict[str, FoundAttempt]:
        return {attempt.container: attempt for attempt in self.attempts}

    def list_lost(self) -> list[FoundAttempt]:
        return [] if self.alive else [attempt for attempt in self.attempts if attempt.unfinished]


def read_found(paths: Paths, *, alive: bool) -> FoundPod:
    """An empty or missing directory is a Pod that was never started."""
    who = _read(ProcessIdentity, paths.identity)
    kinds: dict[tuple[str, int], set[str]] = {}
    for name in _list(f"{paths.directory}/run"):
        parts = name.split(".")
        if len(parts) == 4 and parts[3] == "json" and parts[1].isdigit():
            kinds.setdefault((parts[0], int(parts[1])), set()).add(parts[2])
    attempts = tuple(_read_attempt(paths, *key, kinds[key]) for key in sorted(kinds))
    rebooted = who is not None and who.boot_id != read_boot_id()
    return FoundPod(os.path.basename(paths.directory), alive, rebooted, _read(SandboxSpec, paths.pod), attempts)


def _read_attempt(paths: Paths, container: str, number: int, kinds: set[str]) -> FoundAttempt:
    started = _read(Started, paths.started(container, number)) if "started" in kinds else None
    if started is None and "started" in kinds:
        started = Started(0, 0.0)  # its marker was created, and the machine died before it was written
    exited = _read(Exited, paths.exited(container, number)) if "exit" in kinds else None
    return FoundAttempt(container, number, started, exited)


def is_locked(paths: Paths) -> bool:
    """Whether a process holds the Pod's lock. Checks without taking the lock, so that nobody is refused meanwhile."""
    try:
        handle = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = fcntl.fcntl(handle, fcntl.F_GETLK, asked)
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)
    finally:
        os.close(handle)


def list_live(pods: Path) -> list[str]:
    """Uids of Pods whose shim is alive; `pods` is the directory of all."""
    return sorted(path.name for path in _list_directories(pods) if is_locked(Paths(str(path))))


def find_pod_by_shim(pods: Path, pids: Collection[int]) -> SandboxSpec | None:
    """The Pod whose running shim is one of these processes."""
    for path in _list_directories(pods):
        paths = Paths(str(path))
        who = _read(ProcessIdentity, paths.identity)
        if who is not None and who.pid in pids and is_alive(who):
            return _read(SandboxSpec, paths.pod)
    return None


def _list_directories(pods: Path) -> list[Path]:
    try:
        with os.scandir(pods) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(kind: type[_Kind], path: str) -> _Kind | None:
    """None if it does not exist, or the machine died before its content was on disk."""
    try:
        with open(path, "rb") as file:
            return decode(kind, file.read())
    except (FileNotFoundError, ValueError, TypeError):
        return None
