"""Measures CPU and memory usage of Pods and of this machine on request; two readings of CPU time give a rate.

The last reading of each Pod is kept for a minute, so that the next request gets the average since then; the first
request waits for a second reading. Without requests this costs nothing. The numbers come from control groups if there
are any, otherwise from /proc. The API server uses it through `app`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock
from trainmaster.node.host.hardware import Hardware, NodeHealth
from trainmaster.node.shims.link import ShimError
from trainmaster.node.shims.supervisor import Supervisor

PAUSE_SECONDS = 0.25
"""Between the two readings of a first request."""
_OLD_SECONDS = 60.0
_FRESH_SECONDS = 5.0
"""A kept reading is replaced when it is older, so that frequent requests do not shorten the window."""
_GROUP = Path("/sys/fs/cgroup")

UsageT = TypeVar("UsageT")


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Total CPU time and current memory of one Pod, by container."""

    at: float
    cpu_ns: Mapping[str, int]
    memory: Mapping[str, int]


class NodeMeter(Generic[UsageT]):
    """`build` makes a usage from nanocores, bytes and seconds."""

    def __init__(
        self,
        supervisor: Supervisor,
        clock: Clock,
        build: Callable[[int, int, float], UsageT],
        *,
        hardware: Hardware,
        read_health: Callable[[], NodeHealth],
    ) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._build = build
        self._hardware = hardware
        self._read_health = read_health
        self._kept: dict[str, MeterReading] = {}
        self._stopped: set[str] = set()

    async def measure_pods(self, pods: Sequence[Object]) -> dict[str, dict[str, UsageT]]:
        """By uid and container; Pods without a shim are missing."""
        bases = self._take_bases([pod["metadata"]["uid"] for pod in pods])
        fresh = [pod for pod in pods if pod["metadata"]["uid"] not in bases]
        if fresh:
            bases.update(await self._read_all(fresh))
            await self._clock.sleep(PAUSE_SECONDS)
        now = await self._read_all(pods)
        for uid, reading in now.items():
            kept = self._kept.get(uid)
            if kept is None or reading.at - kept.at > _FRESH_SECONDS:
                self._kept[uid] = reading
        return {uid: self._compare(bases[uid], reading) for uid, reading in now.items() if uid in bases}

    def has_stopped(self, uid: str) -> bool:
        """Whether processes of the Pod were stopped, by a signal or a debugger, when it was read last."""
        return uid in self._stopped

    def _take_bases(self, uids: Sequence[str]) -> dict[str, MeterReading]:
        now = self._clock.monotonic()
        self._kept = {uid: kept for uid, kept in self._kept.items() if now - kept.at < _OLD_SECONDS}
        usable = {uid: self._kept[uid] for uid in uids if uid in self._kept}
        return {uid: kept for uid, kept in usable.items() if now - kept.at >= PAUSE_SECONDS}

    async def _read_all(self, pods: Sequence[Object]) -> dict[str, MeterReading]:
        found = await asyncio.gather(*(self._read(pod) for pod in pods))
        return {uid: reading for uid, reading in found if reading is not None}

    async def _read(self, pod: Object) -> tuple[str, MeterReading | None]:
        uid = pod["metadata"]["uid"]
        try:
            stats, _ = await self._supervisor.request(uid, "stats")
        except ShimError:
            self._stopped.discard(uid)
            return uid, None
        # Shims of earlier versions do not tell.
        (self._stopped.add if stats.get("stopped") else self._stopped.discard)(uid)
        running = list_running(Pod(pod))
        parts = {name: part for name, part in read_fields(stats, "containers").items() if name in running}
        if len(running) == 1 or not parts:
            # The Pod's group is more accurate than its processes; older shims report only that.
            parts = {name: stats if name == running[0] else {} for name in running}
        return uid, MeterReading(
            self._clock.monotonic(),
            {name: int(part.get("cpu_ns", 0)) for name, part in parts.items()},
            {name: int(part.get("rss_bytes", 0)) for name, part in parts.items()},
        )

    def _compare(self, before: MeterReading, now: MeterReading) -> dict[str, UsageT]:
        seconds = max(now.at - before.at, 1e-3)
        return {
            name: self._build(_get_rate(before.cpu_ns.get(name, 0), cpu, seconds), now.memory[name], seconds)
            for name, cpu in now.cpu_ns.items()
        }

    async def measure_node(self) -> UsageT:
        before, at = read_machine_cpu(), self._clock.monotonic()
        await self._clock.sleep(PAUSE_SECONDS)
        seconds = max(self._clock.monotonic() - at, 1e-3)
        memory = max(0, self._hardware.memory_bytes - self._read_health().memory_free_bytes)
        return self._build(_get_rate(before, read_machine_cpu(), seconds), memory, seconds)


def list_running(pod: Pod) -> list[str]:
    running = [item["name"] for item in pod.all_container_statuses if "running" in read_fields(item, "state")]
    return running or [pod.containers[0]["name"]]


def _get_rate(before: int, now: int, seconds: float) -> int:
    """In nanocores. Processes that ended take their CPU time with them, so it is never below 0."""
    return max(0, int((now - before) / seconds))


def read_machine_cpu() -> int:
    """CPU time in ns of everything that shares our limits: our container's group if there is one, otherwise the
    machine."""
    if (_GROUP / "cpu.max").exists():
        for line in (_GROUP / "cpu.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "usage_usec":
                return int(value) * 1000
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    user, nice, system, _idle, _wait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
