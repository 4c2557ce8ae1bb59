"""Decides how many Pods should run, which to stop if there are too many, and which to create if there are too few.

Pure computation on `PodCounts`; `passes` turns the results into writes. Pods are identified by slot numbers:
completion indexes, or serial numbers for a Job without indexes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.reading import read_text
from trainmaster.controllers.job.expected_pods import Slot
from trainmaster.controllers.job.pod_counts import PodCounts
from trainmaster.controllers.job.pods import count_restarts, find_index
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.timeline import Now

MOST = 500
"""The maximum number of Pods created or stopped in one pass, as upstream, so that other Jobs are not held up."""


@dataclass(frozen=True, slots=True)
class Missing:
    numbers: tuple[int, ...] = ()
    """Slots whose Pods can be created now."""
    pause: float | None = None
    """Seconds until the next Pod can be created."""
    is_all: bool = True
    """Whether no Pod has to wait for its back-off or for another pass."""
    is_truncated: bool = False
    """Whether there are more Pods to create than one pass allows."""


def count_wanted(job: Job, counts: PodCounts) -> int:
    if job.completions is None:
        # After the first success the other Pods run to completion, and none is replaced.
        return len(counts.running) if counts.succeeded else job.parallelism
    return max(0, min(job.parallelism, job.completions - counts.succeeded))


def list_surplus(job: Job, counts: PodCounts) -> list[int]:
    """Running slots to stop, the least valuable first."""
    surplus = len(counts.running) - count_wanted(job, counts)
    if surplus <= 0:
        return []
    return sorted(counts.running, key=lambda number: (_get_deletion_rank(counts.running[number]), -number))[
        : min(surplus, MOST)
    ]


def _get_deletion_rank(pod: Pod) -> tuple[object, ...]:
    """Upstream's order; prefers Pods that are assigned, running, ready, ready for longer, rarely restarted, older."""
    return (
        bool(pod.node),
        {"Pending": 0, "Unknown": 1}.get(pod.phase, 2),
        pod.is_ready,
        _Reversed(read_text(pod.find_condition("Ready"), "lastTransitionTime")),
        -count_restarts(pod),
        _Reversed(pod.created_at),
    )


class _Reversed:
    """Sorts later times before earlier ones."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text


def list_missing(job: Job, counts: PodCounts, policy: BackoffPolicy, now: Now) -> Missing:
    waits_for_end = job.spec.get("podReplacementPolicy") == "Failed"
    held = len(counts.running) + (len(counts.terminating) if waits_for_end else 0)
    missing = count_wanted(job, counts) - held
    if missing <= 0:
        return Missing()
    expected = counts.expected
    if not job.is_indexed:
        pause = _get_pause(job, policy, expected.failures, expected.at, now)
        if pause > 0:
            return Missing(pause=pause, is_all=False)
        return _cut(tuple(range(expected.next, expected.next + missing)))
    free = _list_free(job, counts, missing, waits_for_end=waits_for_end)
    if "backoffLimitPerIndex" in job.spec:
        return _split_by_pause(job, counts, free, policy, now)
    pause = _get_pause(job, policy, expected.failures, expected.at, now)
    return Missing(pause=pause, is_all=False) if free and pause > 0 else _cut(tuple(free))


def _list_free(job: Job, counts: PodCounts, count: int, *, waits_for_end: bool) -> list[int]:
    taken = {*counts.expected.list_open(), *counts.completed, *counts.failed_indexes}
    if waits_for_end:
        taken.update(index for pod in counts.terminating if (index := find_index(pod)) is not None)
    found: list[int] = []
    for index in range(job.completions or 0):
        if len(found) == count:
            break
        if index not in taken:
            found.append(index)
    return found


def _split_by_pause(job: Job, counts: PodCounts, free: list[int], policy: BackoffPolicy, now: Now) -> Missing:
    """Each index has its own back-off."""
    pauses: dict[int, float] = {}
    for index in free:
        slot = counts.expected.slots.get(index, Slot())
        pauses[index] = _get_pause(job, policy, slot.failures + slot.ignored, slot.at, now, index)
    ready = tuple(index for index in free if pauses[index] <= 0)
    waiting = [pause for pause in pauses.values() if pause > 0]
    cut = _cut(ready)
    return Missing(
        cut.numbers, min(waiting, default=None), is_all=cut.is_all and not waiting, is_truncated=cut.is_truncated
    )


def _cut(numbers: tuple[int, ...]) -> Missing:
    return Missing(numbers[:MOST], is_all=len(numbers) <= MOST, is_truncated=len(numbers) > MOST)


def _get_pause(job: Job, policy: BackoffPolicy, failures: int, at: str, now: Now, index: int | None = None) -> float:
    """Seconds. Failures are timed separately, even if the clock was set back and shows the same time again."""
    if not at:
        return 0.0
    what = f"failure {failures}" if index is None else f"failure {failures} of index {index}"
    return max(0.0, now.left(job.uid, what, at, policy.delay(failures)))
