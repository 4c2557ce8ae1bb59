"""Deletes a finished JobSet when its TTL expires, and gives its Jobs the TTL of their templates.

The TTL is measured from the stored time of the Completed or Failed condition. The delete is conditional on uid and
revision, so a longer TTL set in the meantime takes effect. A JobSet that belongs to a TrainJob is kept until the
TrainJob has recorded its end; otherwise the TrainJob would find no JobSet and run again.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_spec, read_text
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.status import select
from trainmaster.engine.draft import build_patch
from trainmaster.engine.request import Request
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now


def find_remaining(view: View, jobset: JobSet, now: Now) -> float | None:
    """Seconds until the finished JobSet is deleted, 0 if it is due; None if it is not to be deleted by a timer."""
    ttl = jobset.spec.get("ttlSecondsAfterFinished")
    finished_at = read_text(jobset.end, "lastTransitionTime")
    if ttl is None or not finished_at:
        return None
    left = max(0.0, now.left(jobset.uid, "finished", finished_at, float(ttl)))
    return left if _is_noted_by_owner(view, jobset) else None


def _is_noted_by_owner(view: View, jobset: JobSet) -> bool:
    reference = jobset.controller
    if reference is None or reference.get("kind") != "TrainJob":
        return True
    found = view.find(TRAIN_JOBS, jobset.namespace, reference["name"])
    if found is None:
        return True
    trainjob = TrainJob(found)
    return trainjob.uid != reference["uid"] or trainjob.is_deleting or trainjob.is_finished


def restore_job_ttls(jobset: JobSet, buckets: ChildJobs) -> list[Patch]:
    """Restores the TTL of finished Jobs, which is safe because they are not created again."""
    writes = []
    for replicated in jobset.replicated_jobs:
        ttl = read_spec(replicated["template"]).get("ttlSecondsAfterFinished")
        if ttl is None:
            continue
        for job in select([*buckets.succeeded, *buckets.failed], replicated["name"]):
            if "ttlSecondsAfterFinished" not in job.spec and not job.is_deleting:
                writes.append(build_patch(JOBS, job, {"spec": {"ttlSecondsAfterFinished": ttl}}))
    return writes


def map_trainjob(view: View, obj: Object) -> Iterable[Request]:
    """The JobSet that waits for its TrainJob to record its end."""
    trainjob = TrainJob(obj)
    if not trainjob.is_finished:
        return ()
    jobset = view.find(JOB_SETS, trainjob.namespace, trainjob.name)
    if jobset is None or read_spec(jobset).get("ttlSecondsAfterFinished") is None:
        return ()
    return (Request(trainjob.namespace, trainjob.name),)
