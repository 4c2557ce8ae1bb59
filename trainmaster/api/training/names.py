"""The length of names derived from a TrainJob's name.

Jobs are `JOBSET-JOB-INDEX`, Pods `JOBSET-JOB-INDEX-POD-xxxxx`, and each must be a DNS label of 63 characters. Upstream
finds out when the JobSet is refused; here the TrainJob is refused with the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_LABEL = 63
_POD_SUFFIX = len("-abcde")


def get_longest_suffix(counts: Mapping[str, tuple[int, int]]) -> tuple[str, int]:
    """(suffix of Pod names, its length) of the job with the longest suffix; `counts` maps names to (replicas, Pods)."""
    suffixes = []
    for job, (replicas, pods) in counts.items():
        suffixes.append(f"-{job}-{max(replicas, 1) - 1}-{max(pods, 1) - 1}")
    longest = max(suffixes, key=len, default="")
    return longest, len(longest) + (_POD_SUFFIX if longest else 0)


def find_too_long(name: str, counts: Mapping[str, tuple[int, int]]) -> str | None:
    """Why the name is too long for the objects that will be named after it."""
    suffix, length = get_longest_suffix(counts)
    room = LONGEST_LABEL - length
    if len(name) <= room:
        return None
    text = f"must be no more than {room} characters with this runtime, because Pods are named {name}{suffix}-xxxxx"
    return f"{text} and a Pod name here is a DNS label of at most {LONGEST_LABEL} characters"


def count_pods(spec: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Per job of a JobSet spec: (replicas, Pods of one replica)."""
    counts = {}
    for job in spec.get("replicatedJobs") or ():
        job_spec = (job.get("template") or {}).get("spec") or {}
        counts[job["name"]] = (int(job.get("replicas") or 1), int(job_spec.get("parallelism") or 1))
    return counts
