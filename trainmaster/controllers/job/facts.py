"""What a pass asks every Pod, read once for each version of the Pod.

A look at a Job looks at all its Pods; most have not changed since the last one. `PodFactsMemo` keeps the answers of
large Jobs from one look to the next. An answer belongs to one object in memory, which nobody changes and which the memo
keeps alive, so it is never out of date, whatever becomes of revisions: with and without a memo every plan is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api import labels
from trainmaster.api.formats.numbers import find_count
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod

SMALL = 32
"""Jobs of so many Pods are looked at at once, whenever one of them changes, and nothing is kept about them."""
_MOST_JOBS = 64
"""Large Jobs that are remembered; one that is forgotten costs some milliseconds."""


@dataclass(slots=True)
class PodFacts:
    """Never changed; not frozen, because that makes thousands of them slow to make."""

    pod: Pod
    uid: str
    index: int | None
    attempt: int | None
    is_over: bool
    is_terminating: bool
    is_ready: bool
    waiting: str | None
    """What a Pod that no node takes says about itself."""
    controller_label: str | None

    @property
    def is_active(self) -> bool:
        return not self.is_over and not self.is_terminating

    def find_key(self, *, indexed: bool) -> tuple[int, int] | None:
        """(slot, attempt); None for a Pod that this controller did not make."""
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
        """Job uid to the identity of a Pod in memory to its facts, the least recently seen Job first."""

    def read(self, job_uid: str, pods: Sequence[Object]) -> list[PodFacts]:
        known = self._known.pop(job_uid, None) or {}
        if len(pods) <= SMALL:
            return [read_facts(pod) for pod in pods]
        found = [known.get(id(pod)) or read_facts(pod) for pod in pods]
        # Only what was seen this time: versions of the past are let go.
        self._known[job_uid] = {id(facts.pod.raw): facts for facts in found}
        if len(self._known) > _MOST_JOBS:
            del self._known[next(iter(self._known))]
        return found

    def forget(self, job_uid: str) -> None:
        self._known.pop(job_uid, None)
