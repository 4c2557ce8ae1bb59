"""Plans what `trainmaster cleanup` deletes, and why. Pure: turns lists of objects into a plan that a person can review.

Works with any API server, with our controllers, upstream's, or none. Finished jobs are selected by age, state, label
and owner; orphans are children whose training job, JobSet or Job no longer exists; a finalizer is cleared only if
requested, and only from an object that is already being deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.labels import ANCESTOR_STEP, CODE_MAP, CODE_OF
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_fields, read_labels
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS
from trainmaster.jobs.code_maps import is_left_over
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import parse_time

DELETE, CLEAR = "delete", "clear finalizers, then delete"
_ORDINARY = ("foregroundDeletion", "orphan")


@dataclass(frozen=True, slots=True)
class FinishedJobFilter:
    """Which finished jobs to select; empty values do not restrict the selection."""

    state: str = ""
    older_than: float = 0.0
    """Minimum seconds since the end."""
    owner: str = ""
    """`NAME` or `KIND/NAME` of an owner reference."""


@dataclass(frozen=True, slots=True)
class Removal:
    gvr: GVR
    namespace: str
    name: str
    uid: str
    action: str
    why: str
    finalizers: tuple[str, ...] = ()


def plan_finished(jobs: Iterable[TrainingJob], wanted: FinishedJobFilter, now: datetime) -> Iterator[Removal]:
    """The selected finished jobs that are not being deleted."""
    for job in jobs:
        if job.end is None or job.is_deleting:
            continue
        state, moment = job.end
        age = (now - parse_time(moment)).total_seconds()
        if wanted.state not in ("", state) or age < wanted.older_than or not _has_owner(job, wanted.owner):
            continue
        yield _remove(job.gvr, job, DELETE, f"{state} {describe_age(age)} ago")


def plan_stuck(jobs: Iterable[TrainingJob], now: datetime) -> Iterator[Removal]:
    """Deleted jobs that a finalizer keeps."""
    for job in jobs:
        foreign = list_foreign_finalizers(job)
        if job.is_deleting and foreign:
            age = (now - parse_time(job.meta["deletionTimestamp"])).total_seconds()
            why = f"deleted {describe_age(age)} ago, kept by {', '.join(foreign)}"
            yield _remove(job.gvr, job, CLEAR, why)


def plan_orphans(jobs: Iterable[TrainingJob], found: Mapping[GVR, Sequence[Object]]) -> Iterator[Removal]:
    """The given JobSets, Jobs and Pods whose parent is gone. Objects that are deleted with another orphan are not
    listed again."""
    alive, doomed = {job.uid for job in jobs}, set[str]()
    for gvr, parents in ((JOB_SETS, [*TRAINING_KINDS]), (JOBS, ["JobSet"]), (PODS, ["Job", *TRAINING_KINDS])):
        for obj in map(ObjectModel, found.get(gvr, ())):
            owner = obj.controller
            if owner is not None and owner.get("kind") not in parents:
                owner = None
            if obj.is_deleting:
                alive.add(obj.uid)
            elif owner is not None and owner["uid"] in doomed:
                doomed.add(obj.uid)
            elif owner is not None and owner["uid"] not in alive:
                doomed.add(obj.uid)
                yield _remove(gvr, obj, DELETE, f"its {owner['kind']} {owner['name']} is gone")
            elif owner is None and _was_made_for_a_job(gvr, obj):
                doomed.add(obj.uid)
                yield _remove(gvr, obj, DELETE, f"made for a {parents[0]}, and belongs to none any more")
            else:
                alive.add(obj.uid)


def plan_left_code(jobs: Iterable[TrainingJob], config_maps: Iterable[Object], now: datetime) -> Iterator[Removal]:
    """The given ConfigMaps with code whose job was never created."""
    wanted = {(job.namespace, job.annotations.get(CODE_MAP)) for job in jobs}
    for obj in map(ObjectModel, config_maps):
        if (obj.namespace, obj.name) not in wanted and is_left_over(obj.raw, now):
            why = f"code of the TrainJob {obj.labels[CODE_OF]}, which was not created"
            yield _remove(CONFIG_MAPS, obj, DELETE, why)


def list_foreign_finalizers(obj: ObjectModel) -> list[str]:
    """The finalizers that keep a deleted object until somebody else removes them."""
    return [name for name in obj.finalizers if name not in _ORDINARY]


def describe_age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def _has_owner(obj: ObjectModel, owner: str) -> bool:
    names = [f"{ref.get('kind')}/{ref.get('name')}" for ref in obj.owners]
    return not owner or any(owner in (name, name.partition("/")[2]) for name in names)


def _was_made_for_a_job(gvr: GVR, obj: ObjectModel) -> bool:
    """Whether it has no owner, although its labels say that a controller created it: its parent was deleted with orphan
    propagation."""
    if obj.owners:
        return False
    if gvr == JOB_SETS:
        jobs = JobSet(obj.raw).replicated_jobs
        return any(ANCESTOR_STEP in read_labels(read_fields(job, "template")) for job in jobs)
    return any(model.pod_label in obj.labels for model in TRAINING_KINDS.values())


def _remove(gvr: GVR, obj: ObjectModel, action: str, why: str) -> Removal:
    return Removal(gvr, obj.namespace, obj.name, obj.uid, action, why, tuple(obj.finalizers))
