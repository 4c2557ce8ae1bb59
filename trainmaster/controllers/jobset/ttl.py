"""Deleting a finished JobSet when its time is over, and giving its Jobs the TTL of their templates.

Measured from the stored time of the Completed or Failed condition. The delete names uid and revision, so a longer TTL
that was accepted meanwhile is never missed. A JobSet that belongs to a TrainJob waits until the TrainJob has noted the
end: otherwise the TrainJob would find no JobSet and run once more.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.conditions import list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.api.training.ends import is_finished
from trainmaster.client.view import View
from trainmaster.client.writes import Delete, Patch
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.places import list_replicated
from trainmaster.controllers.jobset.status import select
from trainmaster.controllers.ownership import find_controller, is_terminating
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now


def find_remaining(view: View, jobset: Object, now: Now) -> float | None:
    """Seconds until the finished JobSet is to be deleted, 0 when it is due; None: nothing to wait for."""
    ttl = jobset["spec"].get("ttlSecondsAfterFinished")
    finished_at = _find_end(jobset)
    if ttl is None or finished_at is None:
        return None
    left = max(0.0, now.left(jobset["metadata"]["uid"], "finished", finished_at, float(ttl)))
    return left if _is_noted_by_owner(view, jobset) else None


def _find_end(jobset: Object) -> str | None:
    for condition in list_conditions(jobset):
        if condition.get("type") in ("Completed", "Failed") and condition.get("status") == "True":
            moment = condition.get("lastTransitionTime")
            return str(moment) if moment else None
    return None


def _is_noted_by_owner(view: View, jobset: Object) -> bool:
    reference = find_controller(jobset)
    if reference is None or reference.get("kind") != "TrainJob":
        return True
    trainjob = view.find(TRAIN_JOBS, jobset["metadata"]["namespace"], reference["name"])
    if trainjob is None or trainjob["metadata"]["uid"] != reference["uid"] or is_terminating(trainjob):
        return True
    return is_finished(trainjob)


def build_delete(jobset: Object) -> Delete:
    meta = jobset["metadata"]
    return Delete(JOB_SETS, meta["namespace"], meta["name"], meta["uid"], meta["resourceVersion"], "Foreground")


def release_jobs(jobset: Object, buckets: ChildJobs) -> list[Patch]:
    """From here on a Job's own TTL may take it away: nobody makes it again."""
    writes = []
    for replicated in list_replicated(jobset):
        ttl = (replicated["template"].get("spec") or {}).get("ttlSecondsAfterFinished")
        if ttl is None:
            continue
        for job in select([*buckets.succeeded, *buckets.failed], replicated["name"]):
            if "ttlSecondsAfterFinished" not in job["spec"] and not is_terminating(job):
                meta = job["metadata"]
                patch = {"metadata": {"uid": meta["uid"]}, "spec": {"ttlSecondsAfterFinished": ttl}}
                writes.append(Patch(JOBS, meta["namespace"], meta["name"], patch))
    return writes


def map_trainjob(view: View, trainjob: Object) -> Iterable[Request]:
    """The JobSet that waited for its TrainJob to note the end."""
    if not is_finished(trainjob):
        return ()
    meta = trainjob["metadata"]
    jobset = view.find(JOB_SETS, meta["namespace"], meta["name"])
    if jobset is None or jobset["spec"].get("ttlSecondsAfterFinished") is None:
        return ()
    return (Request(meta["namespace"], meta["name"]),)
