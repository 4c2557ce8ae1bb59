"""Maps changes to the JobSets to reconcile: owners, and JobSets that wait for a name.

If another owner's Job or claim has a name that a JobSet needs, the deletion of that object must trigger a pass. The
object has no reference to the JobSet, but its name contains the JobSet's: `<JobSet>-<ReplicatedJob>-<index>` and
`<template>-<JobSet>`. The JobSet is found with a few lookups by name, without listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_spec
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.controllers.jobset import leftovers, ttl
from trainmaster.controllers.jobset.children import sort_jobs
from trainmaster.controllers.jobset.status import build_counts
from trainmaster.controllers.waiting import find_annotated
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_owner, map_to_self
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel


def map_jobset(view: View, jobset: Object) -> Iterable[Request]:
    return () if _is_settled(view, JobSet(jobset)) else map_to_self(view, jobset)


def _is_settled(view: View, jobset: JobSet) -> bool:
    """Whether the JobSet has finished and a pass would find nothing to do. Such JobSets, of which there may be many,
    are skipped both at startup and later."""
    if not jobset.is_finished or "ttlSecondsAfterFinished" in jobset.spec or find_annotated(jobset.raw) is not None:
        return False
    templates = (read_spec(replicated["template"]) for replicated in jobset.replicated_jobs)
    if any("ttlSecondsAfterFinished" in template for template in templates):
        return False
    buckets = sort_jobs(jobset, map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)))
    is_left = buckets.active or buckets.previous
    return not is_left and build_counts(jobset, buckets) == jobset.status.get("replicatedJobsStatus")


def map_job(view: View, obj: Object) -> Iterator[Request]:
    job = Job(obj)
    if _is_over_with_its_jobset(view, job):
        return
    parts = job.name.split("-")
    candidates = ["-".join(parts[:length]) for length in range(1, len(parts) - 1)]
    yield from _map_names(view, job, candidates)


def _is_over_with_its_jobset(view: View, job: Job) -> bool:
    reference = job.controller
    if reference is None or not job.is_finished:
        return False
    found = view.find(JOB_SETS, job.namespace, reference["name"])
    if found is None:
        return False
    jobset = JobSet(found)
    return jobset.uid == reference["uid"] and _is_settled(view, jobset)


def map_claim(view: View, obj: Object) -> Iterator[Request]:
    claim = ObjectModel(obj)
    parts = claim.name.split("-")
    candidates = ["-".join(parts[start:]) for start in range(1, len(parts))]
    yield from _map_names(view, claim, candidates)


_map_to_jobset = map_to_owner("JobSet")


def map_service(view: View, service: Object) -> Iterator[Request]:
    """The owner, and the JobSet with that name, which uses another owner's Service as long as it exists."""
    meta = service["metadata"]
    owners = tuple(_map_to_jobset(view, service))
    yield from owners
    if not owners and view.find(JOB_SETS, meta["namespace"], meta["name"]) is not None:
        yield Request(meta["namespace"], meta["name"])


def _map_names(view: View, obj: ObjectModel, candidates: Iterable[str]) -> Iterator[Request]:
    """The owner, and JobSets with one of these names that are waiting."""
    namespace, reference = obj.namespace, obj.controller
    owner = reference["name"] if reference is not None and reference.get("kind") == "JobSet" else ""
    if owner:
        yield Request(namespace, owner)
    for name in candidates:
        jobset = view.find(JOB_SETS, namespace, name) if name != owner else None
        if jobset is not None and find_annotated(jobset) is not None:
            yield Request(namespace, name)


SOURCES = (
    ChangeSource(JOB_SETS, map_jobset),
    ChangeSource(JOBS, map_job),
    ChangeSource(PODS, leftovers.map_pod),
    ChangeSource(SERVICES, map_service),
    ChangeSource(PERSISTENT_VOLUME_CLAIMS, map_claim),
    ChangeSource(TRAIN_JOBS, ttl.map_trainjob),
)
