"""Limits how fast the Pods of a tenant write to the disk, by freezing them briefly.

All writes become durable on the same disk. A tenant that wrote 200 MB per second, within its budget because it deleted
the data again, made an fsync of the server take 50 ms. Kernels limit buffered writes only in the unified hierarchy with
its io controller, which many machines do not have. So this measures how much the processes in a tenant's control group
have written, and lets their shims freeze the Pods until the average is right. The shim thaws them by itself, so nothing
stays frozen when the server ends. Without control groups there is no limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from trainmaster.kit.clock import Clock
from trainmaster.node.shims.link import ShimError
from trainmaster.shim.sandbox.cgroups import NODE_GROUP

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
_COST_FACTOR = 20.0
"""Measuring takes at most 1/20 of the time."""
_BURST_SECONDS = 0.25
"""The burst that may be written, in seconds of the rate."""
MOST_SECONDS = 0.5
"""The longest pause, so that probes and clients do not take a Pod for dead."""


@dataclass(slots=True)
class WritePace:
    """What one tenant has written, compared with its limit."""

    rate: float
    level: float
    """Bytes that may be written now; negative if it was too fast."""
    at: float
    seen: dict[int, int] = field(default_factory=dict)

    def note(self, written: Mapping[int, int], now: float) -> float:
        """`written`: bytes per process since its start. Returns for how many seconds the tenant has to pause."""
        grown = sum(total - self._get_before(pid, total) for pid, total in written.items())
        self.seen = dict(written)
        self.level = min(self.rate * _BURST_SECONDS, self.level + self.rate * (now - self.at)) - grown
        self.at = now
        return min(MOST_SECONDS, max(0.0, -self.level / self.rate))

    def _get_before(self, pid: int, total: int) -> int:
        before = self.seen.get(pid, 0)
        # A smaller number belongs to another process with the same pid.
        return before if before <= total else 0


class WritePacer:
    """`base`: the unified hierarchy; `prefix`: the prefix of the tenants' group names, followed by the namespace."""

    def __init__(
        self,
        clock: Clock,
        list_pods: Callable[[str], Iterable[str]],
        pause: Callable[[str, float], Awaitable[None]],
        *,
        rate: int,
        base: str,
        prefix: str,
    ) -> None:
        self._clock = clock
        self._list_pods = list_pods
        self._pause = pause
        self._rate = rate
        self._groups = f"{base}/{NODE_GROUP}"
        self._prefix = prefix
        self._is_on = bool(rate and base)
        self._paces: dict[str, WritePace] = {}

    async def work(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                if self._is_on:
                    await self.check()
            except OSError as error:
                # Descriptors may be exhausted temporarily, and this runs ten times per second.
                log.debug("writes not looked at", extra={"error": str(error)})
            cost = self._clock.monotonic() - began
            await self._clock.sleep(max(LOOK_SECONDS, cost * _COST_FACTOR))

    async def check(self) -> None:
        written = await asyncio.to_thread(self._read_all)
        now = self._clock.monotonic()
        self._paces = {name: pace for name, pace in self._paces.items() if name in written}
        for namespace, totals in written.items():
            pace = self._paces.get(namespace)
            if pace is None:
                pace = self._paces[namespace] = WritePace(self._rate, self._rate * _BURST_SECONDS, now)
            seconds = pace.note(totals, now)
            if seconds:
                await self._pause_all(namespace, seconds)

    async def _pause_all(self, namespace: str, seconds: float) -> None:
        log.debug("tenant writes too fast", extra={"namespace": namespace, "pause_seconds": seconds})
        for uid in self._list_pods(namespace):
            with suppress(ShimError):
                await self._pause(uid, seconds)

    def _read_all(self) -> dict[str, dict[int, int]]:
        """By namespace and process: bytes written to the disk."""
        found = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._groups):
                if entry.name.startswith(self._prefix) and entry.is_dir(follow_symlinks=False):
                    found[entry.name.removeprefix(self._prefix)] = read_written(entry.path)
        return found


def read_written(group: str) -> dict[int, int]:
    """For every process in the group and those below it; processes that ended meanwhile are left out."""
    written: dict[int, int] = {}
    for folder, _, _ in os.walk(group):
        for pid in _read_lines(f"{folder}/cgroup.procs"):
            for line in _read_lines(f"/proc/{pid}/io"):
                name, _, value = line.partition(":")
                if name == "write_bytes":
                    written[int(pid)] = int(value)
    return written


def _read_lines(path: str) -> list[str]:
    try:
        with open(path) as stream:
            return stream.read().splitlines()
    except OSError:
        return []
