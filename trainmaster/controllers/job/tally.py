"""What a Job's Pods add up to: active, ready, terminating, failed, and which indexes are complete.

Without finalizers on Pods a count must not depend on Pods that may vanish. Completed indexes are the stored ones and
those of Succeeded Pods. Failures are the largest of the stored count, the failed Pods in sight, and what the newest
Pods remember (each carries the count at its birth), so the number never falls and no Pod is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.labels import POD_UNCOUNTED
from trainmaster.api.meta import Object
from trainmaster.controllers.job.pods import find_index, get_attempt
from trainmaster.controllers.ownership import is_terminating
from trainmaster.kit.clock import parse_time


@dataclass(frozen=True, slots=True)
class Tally:
    active: tuple[Object, ...]
    terminating: tuple[Object, ...]
    failed_pods: tuple[Object, ...]
    completed: frozenset[int]
    failed: int
    ready: int

    @property
    def container_restarts(self) -> int:
        return sum(int(entry.get("restartCount", 0)) for pod in self.active for entry in _list_containers(pod))


def count_pods(job: Object, pods: Sequence[Object]) -> Tally:
    status = job.get("status") or {}
    counts_terminating = _counts_terminating(job)
    active: list[Object] = []
    terminating: list[Object] = []
    failed_pods: list[Object] = []
    completed = set(parse_indexes(status.get("completedIndexes", "")))
    completions = job["spec"].get("completions", 1)
    for pod in pods:
        phase = get_phase(pod)
        index = find_index(pod)
        if phase == "Succeeded" and index is not None and index < completions:
            completed.add(index)
        elif _is_failure(pod, phase, counts_terminating):
            failed_pods.append(pod)
        if phase not in ("Succeeded", "Failed"):
            (terminating if is_terminating(pod) else active).append(pod)
    ready = sum(1 for pod in active if is_true(list_conditions(pod), "Ready"))
    failed = max(status.get("failed", 0), len(failed_pods), _count_remembered(pods, failed_pods))
    return Tally(tuple(active), tuple(terminating), tuple(failed_pods), frozenset(completed), failed, ready)


def _is_failure(pod: Object, phase: str, counts_terminating: bool) -> bool:
    if POD_UNCOUNTED in (pod["metadata"].get("annotations") or {}):
        return False
    return phase == "Failed" or (counts_terminating and is_terminating(pod) and phase != "Succeeded")


def _counts_terminating(job: Object) -> bool:
    if is_true(list_conditions(job), "FailureTarget"):
        return True
    return bool(job["spec"].get("podReplacementPolicy", "TerminatingOrFailed") == "TerminatingOrFailed")


def _count_remembered(pods: Sequence[Object], failed_pods: Sequence[Object]) -> int:
    newest = max((get_attempt(pod) for pod in pods), default=0)
    return newest + sum(1 for pod in failed_pods if get_attempt(pod) == newest)


def get_phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _list_containers(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def get_finish_time(pod: Object) -> datetime:
    """When a finished Pod ended: its last container, else its deletion, else its birth."""
    ends = [
        parse_time(entry["state"]["terminated"]["finishedAt"])
        for entry in _list_containers(pod)
        if ((entry.get("state") or {}).get("terminated") or {}).get("finishedAt")
    ]
    if ends:
        return max(ends)
    return parse_time(pod["metadata"].get("deletionTimestamp") or pod["metadata"]["creationTimestamp"])


def format_indexes(indexes: Sequence[int] | frozenset[int]) -> str:
    """`0,2-4,7`: three or more in a row become an interval, two stay a pair."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs]
    return ",".join(parts)


def parse_indexes(text: str) -> list[int]:
    result: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        result.extend(range(int(low), int(high or low) + 1))
    return result
