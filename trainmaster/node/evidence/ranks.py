"""The evidence of one rank: what its shim finds, its last lines, its memory with the kernel's record of OOM kills.

Log and control group are read here, because they need no access to the program and are there when it has ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.usage import GpuUsage
from trainmaster.kit.clock import format_time
from trainmaster.node.launch.contract import get_container
from trainmaster.node.launch.limits import build_limits
from trainmaster.node.recovery import read_time
from trainmaster.shim.exits import read_last_lines
from trainmaster.shim.protocol import Exited, Paths, read_whole
from trainmaster.shim.sandbox.cgroups import MemoryRecord, read_memory

LINES = 20
_LINE_BYTES = 8 << 10
"""Of all last lines together."""

Rank = Object


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A container that is examined."""

    pod: Pod
    place: PodPlace
    container: str
    attempt: int
    """Of the container in its Pod."""


def build_rank(at: RankPlace, paths: Paths, record: MemoryRecord | None) -> Rank:
    """Without what only its processes know. Blocks."""
    return {
        "job": at.place.job,
        "job_index": at.place.job_index,
        "worker": at.place.index,
        "pod": at.pod.name,
        "container": at.container,
        "error": "",
        "lines": read_last_lines(paths.log(at.container, at.attempt), LINES, _LINE_BYTES),
        "memory": describe_memory(record, at),
        "gpus": [],
        "processes": [],
        "collective": None,
        "end": None,
    }


def read_record(paths: Paths, container: str) -> MemoryRecord | None:
    """None if the Pod has no control group that accounts for memory. A few small files."""
    try:
        groups = json.loads(read_whole(paths.sandbox))["groups"]
    except (OSError, ValueError, KeyError):
        return None
    return read_memory(groups, container)


def describe_memory(record: MemoryRecord | None, at: RankPlace) -> Rank:
    """Without a control group the shim enforces the limit, and only the limit is known."""
    limit = build_limits(get_container(at.pod, at.container)).memory or None
    if record is None:
        return {"used": None, "peak": None, "limit": limit, "oom_kills": None}
    return {
        "used": record.used,
        "peak": record.peak,
        "limit": record.limit or limit,
        "oom_kills": record.oom_kills,
    }


def add_examination(rank: Rank, found: Rank) -> None:
    rank["processes"] = found["processes"]
    rank["collective"] = found.get("collective")
    if found.get("left_out"):
        rank["processes_left_out"] = found["left_out"]
    if rank["memory"]["used"] is None:
        rank["memory"]["used"] = sum(int(process.get("rss") or 0) for process in found["processes"])


def describe_gpus(gpus: tuple[GpuUsage, ...]) -> list[Rank]:
    return [{"index": gpu.index, "id": gpu.id, "percent": gpu.percent, "memory_mib": gpu.memory_mib} for gpu in gpus]


def describe_end(exited: Exited) -> Rank:
    """How it ended, as the shim saw it."""
    return {
        "at": format_time(read_time(exited.at)) if exited.at else None,
        "code": exited.code,
        "signal": exited.signal or None,
        "oom_killed": exited.oom_killed,
        "largest_process": exited.memory or None,
        "message": exited.message or exited.error,
    }
