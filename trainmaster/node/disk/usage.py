"""Measures the disk usage of directories, for sizeLimits, budgets and eviction.

    usage = await meter.measure(path)             bytes and inodes, at most a few seconds old
    usage = await meter.measure(path, enough=n)   stops counting once there is more than n bytes
    meter.find_last(path)                         what was measured last, without looking

The directories belong to Pods, which can make them large, deep and unusual, and change them meanwhile. So trees are
walked by descriptor (`shim.trees`) in a thread, one at a time, with pauses as long as the work between them; expensive
trees are measured less often. A file with several names counts once. All measuring on the node goes through here.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.kit.clock import Clock
from trainmaster.shim.trees import TreeWalk

_SLICE = 256
"""Entries between two pauses: half a millisecond of work."""
_BLOCK = 512
"""Unit of st_blocks."""
_EMPTY = 4096
"""Size of an empty directory."""
MOST_INODES = 2_000_000
"""A walk stops there and is marked as incomplete."""
_MOST_LINKED = 100_000
"""Files with several names that are remembered in one walk; for others, each name counts its share."""
FRESH_SECONDS = 5.0
"""How long a measurement is reused."""
_COST_FACTOR = 20.0
"""A tree is measured for at most 1/20 of the time."""


@dataclass(frozen=True, slots=True)
class TreeUsage:
    bytes: int = 0
    """Allocated blocks, including those of directories. A sparse file counts what was written."""
    inodes: int = 0
    whole: bool = True
    """False: it is at least this much."""

    def __add__(self, other: TreeUsage) -> TreeUsage:
        return TreeUsage(self.bytes + other.bytes, self.inodes + other.inodes, self.whole and other.whole)


def _pause_for(seconds: float) -> None:
    time.sleep(min(max(seconds, 0.0005), 0.05))


def measure_tree(path: str, *, enough: int = 0, pause: Callable[[float], None] = _pause_for) -> TreeUsage:
    """Blocks. `enough`: stop counting above this many bytes; 0 counts all. A path that is not a directory is measured
    by itself; a missing one is empty."""
    try:
        own = os.lstat(path)
    except OSError:
        return TreeUsage()
    counter = _Counter()
    if not stat.S_ISDIR(own.st_mode):
        counter.add(own)
        return TreeUsage(counter.bytes, counter.inodes)
    # An empty directory counts as nothing; one that has had many names is larger.
    counter.bytes += max(own.st_blocks * _BLOCK - _EMPTY, 0)
    try:
        walk = TreeWalk(path)
    except OSError:
        return TreeUsage(counter.bytes, counter.inodes, whole=False)
    began = time.perf_counter()
    for number, entry in enumerate(walk, 1):
        counter.add(entry.status)
        if (enough and counter.bytes > enough) or number >= MOST_INODES:
            walk.whole = False
            break
        if number % _SLICE == 0:
            pause(time.perf_counter() - began)
            began = time.perf_counter()
    walk.close()
    return TreeUsage(counter.bytes, counter.inodes, walk.whole)


@dataclass(slots=True)
class _Counter:
    bytes: int = 0
    inodes: int = 0
    _linked: set[tuple[int, int]] = field(default_factory=set)

    def add(self, status: os.stat_result) -> None:
        size = status.st_blocks * _BLOCK
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            key = (status.st_dev, status.st_ino)
            if key in self._linked:
                return
            if len(self._linked) < _MOST_LINKED:
                self._linked.add(key)
            else:
                size //= status.st_nlink
        self.bytes += size
        self.inodes += 1


@dataclass(slots=True)
class _Measured:
    usage: TreeUsage
    enough: int
    at: float
    cost: float


class DiskUsage:
    """One per node: all callers share its thread and its cache."""

    def __init__(self, clock: Clock, measure: Callable[[str, int], TreeUsage] | None = None) -> None:
        self._clock = clock
        self._measure = measure or (lambda path, enough: measure_tree(path, enough=enough))
        self._known: dict[str, _Measured] = {}
        self._turn = asyncio.Lock()

    async def measure(self, path: str, *, enough: int = 0, fresh: float = FRESH_SECONDS) -> TreeUsage:
        """Measures one tree at a time; concurrent calls for the same one share the result. `fresh`: maximum age in
        seconds, unless the tree is expensive to measure."""
        async with self._turn:
            known = self._known.get(path)
            if known is not None and self._is_fresh(known, enough, fresh):
                return known.usage
            began = self._clock.monotonic()
            usage = await asyncio.to_thread(self._measure, path, enough)
            now = self._clock.monotonic()
            self._known[path] = _Measured(usage, enough, now, now - began)
            return usage

    def find_last(self, path: str) -> TreeUsage | None:
        known = self._known.get(path)
        return None if known is None else known.usage

    def forget(self, path: str) -> None:
        """The directory and everything below it was removed."""
        for known in [known for known in self._known if known == path or known.startswith(f"{path}/")]:
            del self._known[known]

    def _is_fresh(self, known: _Measured, enough: int, fresh: float) -> bool:
        # It stopped at somebody else's limit.
        if not known.usage.whole and known.enough and (not enough or enough > known.enough):
            return False
        return self._clock.monotonic() - known.at < max(fresh, known.cost * _COST_FACTOR)
