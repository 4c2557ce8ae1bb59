"""What a janitor would take away, and why. Pure: from lists of objects to a plan that a person can read first.

Works on what any API server lists, with our controllers, upstream's, or none. Finished TrainJobs are chosen by age,
state, label and owner; orphans are children whose TrainJob, JobSet or Job is gone; a finalizer is cleared only from an
object that is on its way out already, and only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.api.labels import ANCESTOR_STEP, JOBSET_NAME
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_fields, read_labels
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import parse_time

DELETE, CLEAR = "delete", "clear finalizers, then delete"
_ORDINARY = ("foregroundDeletion", "orphan")
_PARENTS = {JOB_SETS: ("TrainJob", TRAIN_JOBS), JOBS: ("JobSet", JOB_SETS), PODS: ("Job", JOBS)}


@dataclass(frozen=True, slots=True)
class FinishedJobFilter:
    """Which finished TrainJobs; an empty value does not choose."""

    state: str = ""
    older_than: float = 0.0
    """Seconds since the end."""
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


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """What was listed, by kind."""

    objects: Mapping[GVR, Sequence[Object]] = field(default_factory=dict)

    def list(self, gvr: GVR) -> Sequence[Object]:
        return self.objects.get(gvr, ())


def plan_finished(trainjobs: Iterable[Object], wanted: FinishedJobFilter, now: datetime) -> Iterator[Removal]:
    """Finished TrainJobs that are chosen and not on their way out."""
    for trainjob in map(TrainJob, trainjobs):
        if trainjob.end is None or trainjob.is_deleting:
            continue
        state, moment = trainjob.end
        age = (now - parse_time(moment)).total_seconds()
        if wanted.state not in ("", state) or age < wanted.older_than or not _has_owner(trainjob, wanted.owner):
            continue
        yield _remove(TRAIN_JOBS, trainjob, DELETE, f"{state} {describe_age(age)} ago")


def plan_stuck(trainjobs: Iterable[Object], now: datetime) -> Iterator[Removal]:
    """TrainJobs that somebody has deleted and a finalizer keeps."""
    for trainjob in map(TrainJob, trainjobs):
        foreign = list_foreign_finalizers(trainjob)
        if trainjob.is_deleting and foreign:
            age = (now - parse_time(trainjob.meta["deletionTimestamp"])).total_seconds()
            why = f"deleted {describe_age(age)} ago, kept by {', '.join(foreign)}"
            yield _remove(TRAIN_JOBS, trainjob, CLEAR, why)


def plan_orphans(found: ListedObjects) -> Iterator[Removal]:
    """Children whose parent is gone. What goes with another orphan is not named again."""
    doomed: set[str] = set()
    for gvr, (kind, parent_gvr) in _PARENTS.items():
        alive = {obj["metadata"]["uid"] for obj in found.list(parent_gvr)} - doomed
        for obj in map(ObjectModel, found.list(gvr)):
            if obj.is_deleting:
                continue
            owner = obj.controller
            if owner is not None and owner.get("kind") != kind:
                owner = None
            if owner is not None and owner["uid"] in doomed:
                doomed.add(obj.uid)
            elif owner is not None and owner["uid"] not in alive:
                doomed.add(obj.uid)
                yield _remove(gvr, obj, DELETE, f"its {kind} {owner['name']} is gone")
            elif owner is None and _was_made_for_a_trainjob(gvr, obj):
                doomed.add(obj.uid)
                yield _remove(gvr, obj, DELETE, f"made for a {kind}, and belongs to none any more")


def list_foreign_finalizers(obj: ObjectModel) -> list[str]:
    """Those that keep a deleted object until somebody else removes them."""
    return [name for name in obj.finalizers if name not in _ORDINARY]


def describe_age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def _has_owner(obj: ObjectModel, owner: str) -> bool:
    names = [f"{ref.get('kind')}/{ref.get('name')}" for ref in obj.owners]
    return not owner or any(owner in (name, name.partition("/")[2]) for name in names)


def _was_made_for_a_trainjob(gvr: GVR, obj: ObjectModel) -> bool:
    """Nobody owns it, and its labels say that a controller made it: somebody deleted its parent and kept it."""
    if obj.owners:
        return False
    if gvr == JOB_SETS:
        jobs = JobSet(obj.raw).replicated_jobs
        return any(ANCESTOR_STEP in read_labels(read_fields(job, "template")) for job in jobs)
    return JOBSET_NAME in obj.labels


def _remove(gvr: GVR, obj: ObjectModel, action: str, why: str) -> Removal:
    return Removal(gvr, obj.namespace, obj.name, obj.uid, action, why, tuple(obj.finalizers))
