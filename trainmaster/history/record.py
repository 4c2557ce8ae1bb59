"""The record of a job. Pure: builds one JSON document from the current objects.

A record is written when a job has ended, and replaced when it is deleted. The second one may contain less (children may
be deleted), so it is completed from the first one (`merge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from trainmaster.api.labels import USER
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.training import snapshots
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.objects import ObjectModel

Document: TypeAlias = Object
"""A stored object, as JSON."""

DELETED = "Deleted"
"""The state of a job that was deleted before its end."""
CONTROL_PLANE = "system:trainmaster"
"""Who deleted a job, if our own controllers did."""
_MOST_METRICS = 32
_CONTAINER_LISTS = ("initContainerStatuses", "containerStatuses")


@dataclass(frozen=True, slots=True)
class RecordSources:
    """The objects that a record is built from. All except the job may be missing."""

    job: Fields
    snapshot: Object | None = None
    """The ConfigMap with the snapshot of the runtime."""
    jobsets: Sequence[Object] = ()
    jobs: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    gaps: Sequence[str] = ()
    """Descriptions of what was no longer available."""


@dataclass(frozen=True, slots=True)
class RecordedDeletion:
    at: str
    by: str = ""
    """Who requested it; "" if unknown."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobRecord:
    uid: str
    namespace: str
    name: str
    runtime: str
    state: str
    """Complete, Failed or Deleted."""
    created: str
    finished: str
    """When it ended, or when it was deleted if it had not ended."""
    deletion: RecordedDeletion | None = None
    document: Document = field(default_factory=dict)
    kept_bytes: int = 0
    """Size of the logs, checkpoints and outputs kept with it; counts against the archive's limit."""

    @property
    def kind(self) -> str:
        return str(read_fields(self.document, "trainjob").get("kind") or "TrainJob")


def build_record(
    sources: RecordSources, deletion: RecordedDeletion | None = None, gaps: Sequence[str] = ()
) -> JobRecord:
    job = read_training_job(sources.job)
    state, finished = DELETED, deletion.at if deletion is not None else ""
    if job.end is not None:
        state, finished = job.end
    text = read_fields(sources.snapshot, "data").get(snapshots.DATA_KEY)
    document: Document = {
        "trainjob": _strip(job.raw),
        "runtime": text if isinstance(text, str) else None,
        "jobsets": [_sum_up(jobset) for jobset in sources.jobsets],
        "jobs": [_sum_up(job) for job in sources.jobs],
        "pods": [_sum_up(pod) for pod in sources.pods],
        "events": [_shorten(event) for event in _sort(map(ObjectEvent, sources.events))],
        "gaps": [*sources.gaps, *gaps],
    }
    return JobRecord(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        runtime=job.runtime.get("name", ""),
        state=state,
        created=job.created_at,
        finished=finished,
        deletion=deletion,
        document=document,
    )


def merge(old: JobRecord, new: JobRecord) -> JobRecord:
    """The newer record, completed from the older one."""
    document = dict(new.document)
    document["runtime"] = document["runtime"] or old.document.get("runtime")
    for name in ("jobsets", "jobs", "pods", "events"):
        document[name] = _merge_by_uid(list_items(old.document, name), document[name])
    document["gaps"] = list(dict.fromkeys([*list_items(old.document, "gaps"), *document["gaps"]]))
    state, finished = (old.state, old.finished) if new.state == DELETED != old.state else (new.state, new.finished)
    return JobRecord(
        new.uid,
        new.namespace,
        new.name,
        new.runtime,
        state,
        new.created,
        finished,
        new.deletion or old.deletion,
        document,
        max(old.kept_bytes, new.kept_bytes),
    )


def _merge_by_uid(old: Sequence[Document], new: Sequence[Document]) -> list[Document]:
    """Merged by uid: the newer version of each object, at the position of the older. What only the older one says is
    kept: the memory of a Pod is known as long as its directory exists."""
    merged = {entry["uid"]: entry for entry in old}
    merged.update({entry["uid"]: {**merged.get(entry["uid"], {}), **entry} for entry in new})
    return list(merged.values())


def add_memory(record: JobRecord, measured: Mapping[str, int]) -> JobRecord:
    """The record with the memory of the largest process of each Pod, in bytes by uid."""
    pods = [
        {**pod, "memory": measured[pod["uid"]]} if measured.get(pod["uid"]) else pod for pod in record.document["pods"]
    ]
    return replace(record, document={**record.document, "pods": pods})


def _strip(obj: Fields) -> Document:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": meta}


def _sum_up(obj: Object) -> Document:
    """Identity, labels and status of a child. Its spec follows from the job and the runtime."""
    child = ObjectModel(obj)
    status = dict(child.status)
    for name in _CONTAINER_LISTS:
        if not status.get(name):
            status.pop(name, None)
    return {
        "uid": child.uid,
        "name": child.name,
        "labels": child.labels,
        "created": child.created_at,
        "node": child.spec.get("nodeName", ""),
        "status": status,
    }


def _sort(events: Iterable[ObjectEvent]) -> list[ObjectEvent]:
    return sorted(events, key=lambda event: event.first_at)


def _shorten(event: ObjectEvent) -> Document:
    return {
        "uid": event.uid,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": event.count,
        "first": event.first_at,
        "last": event.last_at,
        "about": event.about,
        "from": event.reporter,
    }


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """What lists of records show besides the line of a record, and search in."""

    user: str = ""
    """Whose job it was, if it was made through REST."""
    nodes: int | None = None
    """As the job asked for."""
    labels: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The last ones that it reported."""

    @property
    def words(self) -> str:
        """What a search looks at, in small letters."""
        labels = [f"{key}={value}" for key, value in self.labels.items()]
        return " ".join([self.user, *labels]).lower()


def read_facts(document: Fields) -> RecordFacts:
    job = read_training_job(document["trainjob"])
    metrics = list_items(job.report, "metrics")[:_MOST_METRICS]
    return RecordFacts(
        job.labels.get(USER, ""),
        job.nodes,
        dict(job.labels),
        {str(one.get("name", "")): str(one.get("value", "")) for one in metrics},
    )
