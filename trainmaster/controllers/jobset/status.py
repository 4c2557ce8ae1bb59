"""The status of a JobSet while a pass works on it: counts, conditions with their events, restarts.

`Draft` collects what one pass decides and is turned into one status patch at its end. Conditions follow JobSet's
write rule: a condition is only ever added as True, and each effective change is also an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.api import labels
from trainmaster.api.conditions import build_condition, find_condition, list_conditions, set_condition
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.client.writes import Patch
from trainmaster.controllers.jobset.children import Buckets, count_replicas, list_replicated
from trainmaster.engine.plan import Note


class Draft:
    def __init__(self, jobset: Object, now: datetime) -> None:
        self._jobset = jobset
        self._now = now
        self.before: Object = jobset.get("status") or {}
        self.status: Object = {"restarts": 0, **self.before}
        self.conditions = list_conditions(jobset)
        self.notes: list[Note] = []

    @property
    def restarts(self) -> int:
        return int(self.status["restarts"])

    def set(self, kind: str, status: bool, reason: str, message: str, *, warning: bool = False) -> None:
        old = find_condition(self.conditions, kind)
        new = build_condition(kind, status, reason, message, self._now)
        if old is None and not status:
            return
        if old is not None and all(old.get(key) == new[key] for key in ("status", "reason", "message")):
            return
        self.conditions = set_condition(self.conditions, new)
        self.note(reason, message, warning=warning)

    def note(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.notes.append(Note(self._jobset, reason, message, warning))

    def count(self, buckets: Buckets) -> None:
        self.status["replicatedJobsStatus"] = _count(self._jobset, buckets)

    def build_patch(self) -> Patch | None:
        if self.conditions:
            self.status["conditions"] = self.conditions
        changed = {key: value for key, value in self.status.items() if self.before.get(key) != value}
        if not changed:
            return None
        meta = self._jobset["metadata"]
        head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        return Patch(JOB_SETS, meta["namespace"], meta["name"], {"metadata": head, "status": changed}, "status")


def _count(jobset: Object, buckets: Buckets) -> list[Object]:
    """One entry per ReplicatedJob, by name descending as upstream stores them. Earlier attempts do not count."""
    entries = []
    for replicated in list_replicated(jobset):
        name = replicated["name"]
        active = _of(buckets.active, name)
        entries.append(
            {
                "name": name,
                "ready": sum(1 for job in active if is_ready(job)),
                "succeeded": len(_of(buckets.succeeded, name)),
                "failed": len(_of(buckets.failed, name)),
                "active": sum(1 for job in active if (job.get("status") or {}).get("active", 0) > 0),
                "suspended": sum(1 for job in active if job["spec"].get("suspend")),
            }
        )
    return sorted(entries, key=lambda entry: str(entry["name"]), reverse=True)


def _of(jobs: Sequence[Object], replicated_name: str) -> list[Object]:
    return [job for job in jobs if job["metadata"]["labels"].get(labels.REPLICATED_JOB_NAME) == replicated_name]


def is_ready(job: Object) -> bool:
    status = job.get("status") or {}
    parallelism = job["spec"].get("parallelism", 1)
    wanted = min(parallelism, job["spec"].get("completions", parallelism))
    return bool(status.get("succeeded", 0) + status.get("ready", 0) >= wanted)


def are_all_started(draft: Draft, jobset: Object) -> bool:
    entries = draft.status["replicatedJobsStatus"]
    started = sum(entry["ready"] + entry["succeeded"] for entry in entries)
    return bool(started == sum(count_replicas(replicated) for replicated in list_replicated(jobset)))
