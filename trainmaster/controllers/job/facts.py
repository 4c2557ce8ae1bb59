"""The properties of a Pod that a pass needs, read once per version of the Pod.

A pass examines all Pods of the Job, and most have not changed since the last pass. `PodFactsMemo` caches the facts of
large Jobs between passes. Facts belong to one immutable object in memory, which the cache keeps alive, so they are
never stale: plans are the same with and without the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api import labels
from trainmaster.api.formats.numbers import find_count
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.steps import Steps

SMALL = 32
"""Up to this number of Pods, changes of a Job are handled without delay and nothing is cached."""
_STEP = 100
"""Pods whose facts are read before others may run; about a millisecond if none are cached."""
_MOST_JOBS = 64
"""The number of large Jobs in the cache. A cache miss costs a few milliseconds."""


@dataclass(slots=True)
class PodFacts:
    """Treat as immutable; not frozen, because creating thousands of frozen instances is slow."""

    pod: Pod
    uid: str
    index: int | None
    attempt: int | None
    is_over: bool
    is_terminating: bool
    is_ready: bool
    waiting: str | None
    """The waiting annotation of a Pod that could not be scheduled."""
    controller_label: str | None

    @property
    def is_active(self) -> bool:
        return not self.is_over and not self.is_terminating

    def find_key(self, *, indexed: bool) -> tuple[int, int] | None:
        """(slot, attempt); None for a Pod that this controller did not create."""
        if self.attempt is None:
            return None
        if not indexed:
            return self.attempt, 0
        return None if self.index is None else (self.index, self.attempt)


def read_facts(raw: Object) -> PodFacts:
    pod = Pod(raw)
    annotations = pod.annotations
    return PodFacts(
        pod=pod,
        uid=pod.uid,
        index=find_count(annotations.get(labels.COMPLETION_INDEX)),
        attempt=find_count(annotations.get(labels.POD_ATTEMPT)),
        is_over=pod.is_over,
        is_terminating=pod.is_deleting,
        is_ready=pod.is_ready,
        waiting=annotations.get(labels.WAITING),
        controller_label=pod.labels.get(labels.CONTROLLER_UID),
    )


class PodFactsMemo:
    def __init__(self) -> None:
        self._known: dict[str, dict[int, PodFacts]] = {}
        """Facts by Job uid and `id()` of the Pod, least recently used Job first."""

    def read(self, job_uid: str, pods: Sequence[Object]) -> Steps[list[PodFacts]]:
        known = self._known.pop(job_uid, None) or {}
        if len(pods) <= SMALL:
            return [read_facts(pod) for pod in pods]
        found: list[PodFacts] = []
        kept: dict[int, PodFacts] = {}
        for start in range(0, len(pods), _STEP):
            yield
            some = [known.get(id(pod)) or read_facts(pod) for pod in pods[start : start + _STEP]]
            found += some
            kept.update((id(facts.pod.raw), facts) for facts in some)
        yield
        # Only the Pods of this pass, to drop outdated versions.
        self._known[job_uid] = kept
        if len(self._known) > _MOST_JOBS:
            del self._known[next(iter(self._known))]
        return found

    def forget(self, job_uid: str) -> None:
        self._known.pop(job_uid, None)
