"""The evidence of one rank: its last lines, its memory with the kernel's record of OOM kills, and what its shim finds.

Its log is read here, because that needs no access to the program, and it is there when the program has ended.
"""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.kit.clock import format_time
from trainmaster.node.evidence.examination import RankPlace
from trainmaster.node.launch.contract import get_container
from trainmaster.node.launch.limits import build_limits
from trainmaster.node.recovery import read_time
from trainmaster.shim.exits import read_last_lines
from trainmaster.shim.protocol import Exited, Paths
from trainmaster.shim.sandbox.cgroups import MemoryRecord

LINES = 20
_LINE_BYTES = 8 << 10
"""Of all last lines together."""

Rank = Object


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
