"""The status of a JobSet during a pass: counts, conditions with their events, restarts.

As in upstream's controller, a new condition is only added as True, and each change emits an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainmaster.api.conditions import build_condition
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.job_indexes import count_replicas
from trainmaster.engine.draft import ObjectDraft
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet

_EXCLUSIVE = {
    "StartupPolicyInProgress": "StartupPolicyCompleted",
    "StartupPolicyCompleted": "StartupPolicyInProgress",
}
_RESTARTS = ("jobRestarts", "jobRestartsCountTowardsMax")


class JobSetDraft(ObjectDraft):
    __slots__ = ("_jobset", "_now")

    def __init__(self, jobset: JobSet, now: datetime) -> None:
        super().__init__(JOB_SETS, jobset)
        self._jobset = jobset
        self._now = now

    @property
    def restarts(self) -> int:
        return int(self.status.get("restarts", 0))

    @property
    def is_finished(self) -> bool:
        return self.is_true("Completed") or self.is_true("Failed")

    def set(self, kind: str, status: bool, reason: str, message: str, *, warning: bool = False) -> None:
        old = self.find_condition(kind)
        new = build_condition(kind, status, reason, message, self._now)
        if old is None and not status:
            return
        if old is not None and all(old.get(key) == new[key] for key in ("status", "reason", "message")):
            return
        # The opposite condition becomes False; as upstream, its reason, message and time are kept.
        other = self.find_condition(_EXCLUSIVE.get(kind, "")) if status else None
        if other is not None:
            self.set_condition({**other, "status": "False"})
        self.set_condition(new)
        self.note(self._jobset, reason, message, warning=warning)

    def count(self, buckets: ChildJobs) -> None:
        self.status.setdefault("restarts", 0)
        self.status["replicatedJobsStatus"] = build_counts(self._jobset, buckets)

    def get_counts(self, name: str) -> Object:
        found = (entry for entry in self.status["replicatedJobsStatus"] if entry["name"] == name)
        counts: Object = next(found)
        return counts


def build_counts(jobset: JobSet, buckets: ChildJobs) -> list[Object]:
    """One entry per ReplicatedJob, sorted by name in descending order as upstream. Earlier attempts do not count."""
    before = {entry["name"]: entry for entry in jobset.replicated_statuses}
    ended = jobset.is_finished
    counts = _count(jobset, buckets)
    for name, entry in counts.items():
        old = before.get(name, {})
        entry.update({key: old[key] for key in _RESTARTS if old.get(key)})
        if ended:
            # Finished Jobs still count after somebody has deleted them.
            entry.update({key: max(entry[key], old.get(key, 0)) for key in ("succeeded", "failed")})
    return sorted(counts.values(), key=lambda entry: str(entry["name"]), reverse=True)


def _count(jobset: JobSet, buckets: ChildJobs) -> dict[str, Object]:
    """By the name of the ReplicatedJob; examines each Job once."""
    names = [replicated["name"] for replicated in jobset.replicated_jobs]
    zeros = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    counts: dict[str, Object] = {name: {"name": name, **zeros} for name in names}
    for job in buckets.active:
        if (entry := counts.get(job.step)) is not None:
            entry["ready"] += is_ready(job)
            entry["active"] += job.active > 0
            entry["suspended"] += job.is_suspended
    for key, jobs in (("succeeded", buckets.succeeded), ("failed", buckets.failed)):
        for job in jobs:
            if (entry := counts.get(job.step)) is not None:
                entry[key] += 1
    return counts


def select(jobs: Iterable[Job], replicated_name: str) -> list[Job]:
    return [job for job in jobs if job.step == replicated_name]


def is_ready(job: Job) -> bool:
    parallelism = job.spec.get("parallelism", 1)
    wanted = min(parallelism, job.spec.get("completions", parallelism))
    return bool(job.succeeded + job.ready >= wanted)


def are_all_started(draft: JobSetDraft, jobset: JobSet) -> bool:
    entries = draft.status["replicatedJobsStatus"]
    started = sum(entry["ready"] + entry["succeeded"] for entry in entries)
    return bool(started == sum(count_replicas(replicated) for replicated in jobset.replicated_jobs))
