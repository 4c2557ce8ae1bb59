"""Which rank of a TrainJob failed first. Pods are examined only if a Job has counted a failure or gives up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trainmaster.api import labels
from trainmaster.api.formats.numbers import find_count
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.training.restarts import read_first
from trainmaster.client.view import View
from trainmaster.controllers.failures import FailedPod, choose_failure, has_failed_run, read_failed_pod
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import JobSetMember
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

REASON = "RankFailed"
_PATIENCE = 2.0
"""Seconds."""


def find_failure(view: View, trainjob: TrainJob, jobset: JobSet) -> Fields | None:
    stored = trainjob.failure
    if jobset.is_suspended:
        # Pods of a suspended job end because they were stopped.
        return stored
    found = [_read_pod(pod, job) for job in _list_failed_jobs(view, jobset) for pod in _list_failed_pods(view, job)]
    return choose_failure(stored, found)


def blame_job(view: View, jobset: JobSet) -> Fields | None:
    """For a failed JobSet of which no Pod is left that explains it: what the Job that failed first says itself."""
    if not jobset.is_true("Failed"):
        return None
    jobs = map(Job, view.owned(JOBS, jobset.namespace, jobset.uid))
    ends = ((job, end) for job in jobs if (end := job.find_condition("Failed")) is not None and job.is_true("Failed"))
    job, end = min(ends, key=lambda entry: read_text(entry[1], "lastTransitionTime"), default=(None, None))
    if job is None or read_text(end, "reason") == "DeadlineExceeded":
        return None
    failure = {
        "attempt": read_first(job.raw) + _count_restarts(_read_marks(job)),
        **_find_place(job),
        "reason": read_text(end, "reason"),
        "message": read_text(end, "message"),
        "finishedAt": read_text(end, "lastTransitionTime"),
    }
    return {name: value for name, value in failure.items() if value not in (None, "")}


def get_pause(view: View, jobset: JobSet, failure: Fields | None, now: Now) -> float:
    """Seconds to wait before reporting a failed JobSet, because the Pod that explains it is not in the view yet. On a
    cluster, caches are updated separately. An embedded view shows everything at once, so there a missing Pod means that
    somebody deleted it."""
    failed = jobset.find_condition("Failed")
    if failed is None or failed.get("status") != "True" or not failed.get("lastTransitionTime"):
        return 0.0
    left = now.left(jobset.uid, "verdict", failed["lastTransitionTime"], _PATIENCE)
    is_known = failure is not None and failure.get("attempt", 0) >= jobset.attempt
    return 0.0 if is_known or not _can_be_explained(view, jobset) else max(left, 0.0)


def _can_be_explained(view: View, jobset: JobSet) -> bool:
    jobs = [Job(job) for job in view.owned(JOBS, jobset.namespace, jobset.uid)]
    ends = (job.find_condition("Failed") for job in jobs)
    return bool(jobs) and not any(read_text(end, "reason") == "DeadlineExceeded" for end in ends)


def _list_failed_jobs(view: View, jobset: JobSet) -> Iterator[Job]:
    for job in map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)):
        if _gives_up(job):
            yield job


def _gives_up(job: Job) -> bool:
    """Or has counted a failure. Failures of containers that it restarts in place are not counted."""
    return bool(job.failed) or job.is_true("FailureTarget") or job.is_true("Failed")


def _list_failed_pods(view: View, job: Job) -> Iterator[Pod]:
    return (pod for pod in map(Pod, view.owned(PODS, job.namespace, job.uid)) if has_failed_run(pod))


def _read_pod(pod: Pod, job: Job) -> FailedPod:
    own = _read_marks(pod)
    place = {**_find_place(pod, job.name), "rank": find_count(own.get(labels.COMPLETION_INDEX))}
    return read_failed_pod(pod, read_first(pod.raw) + _count_restarts(own), place)


def _find_place(member: JobSetMember, job: str = "") -> dict[str, str | int | None]:
    own = _read_marks(member)
    return {
        "job": job or member.name,
        "replicatedJob": own.get(labels.REPLICATED_JOB_NAME),
        "jobIndex": find_count(own.get(labels.JOB_INDEX)),
    }


def _read_marks(member: JobSetMember) -> Mapping[str, str]:
    return {**member.annotations, **member.labels}


def _count_restarts(marks: Mapping[str, str]) -> int:
    """The restarts of its JobSet before it, of the whole gang or of its Job alone."""
    counts = (find_count(marks.get(key)) for key in (labels.RESTART_ATTEMPT, labels.JOB_RESTART_ATTEMPT))
    return sum(count or 0 for count in counts)


def map_failed_job(view: View, obj: Object) -> Iterable[Request]:
    """The TrainJob whose Job has counted a failure. It has the same name as its JobSet."""
    job = Job(obj)
    owner = job.controller
    if owner is None or owner.get("kind") != "JobSet" or not _gives_up(job):
        return ()
    return (Request(job.namespace, owner["name"]),)
