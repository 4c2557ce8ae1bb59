"""Decides whether and how a Job ends. As upstream, the first of these that applies determines the outcome:

failure   a FailJob rule, the back-off limit, the deadline, too many failed indexes, only failed indexes remaining
success   a rule of the success policy; otherwise enough completions (`has_completed`)
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.reading import read_spec
from trainmaster.controllers.job.pod_counts import PodCounts
from trainmaster.controllers.job.pods import count_restarts
from trainmaster.controllers.job.success_policy import find_success
from trainmaster.jobs.models.batch import Job
from trainmaster.kit.timeline import Now

SUCCESS = "SuccessCriteriaMet"
FAILURE = "FailureTarget"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    kind: str
    """The interim condition; Complete or Failed follows once all Pods have ended."""
    reason: str
    message: str


COMPLETED = JobOutcome(SUCCESS, "CompletionsReached", "Reached expected number of succeeded pods")
_TOO_MANY_FAILURES = JobOutcome(FAILURE, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_TOO_LATE = JobOutcome(FAILURE, "DeadlineExceeded", "Job was active longer than specified deadline")
_TOO_MANY_INDEXES = JobOutcome(
    FAILURE, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
)
_FAILED_INDEXES = JobOutcome(FAILURE, "FailedIndexes", "Job has failed indexes")


def find_outcome(job: Job, counts: PodCounts, now: Now) -> JobOutcome | None:
    if counts.fail_job:
        return JobOutcome(FAILURE, "PodFailurePolicy", counts.fail_job)
    if _exceeds_backoff_limit(job, counts):
        return _TOO_MANY_FAILURES
    left = find_time_left(job, now)
    if left is not None and left <= 0:
        return _TOO_LATE
    if counts.failed_indexes:
        most = job.spec.get("maxFailedIndexes")
        if most is not None and len(counts.failed_indexes) > most:
            return _TOO_MANY_INDEXES
        if len(counts.failed_indexes) + len(counts.completed) >= (job.completions or 0):
            return _FAILED_INDEXES
    message = find_success(job, counts.completed)
    return JobOutcome(SUCCESS, "SuccessPolicy", message) if message else None


def _exceeds_backoff_limit(job: Job, counts: PodCounts) -> bool:
    limit = job.spec.get("backoffLimit", 6)
    if counts.failed > limit:
        return True
    if read_spec(job.template).get("restartPolicy") != "OnFailure":
        return False
    # Counts restarts in place, as upstream: a limit of 0 is exceeded by the first restart, any other by reaching it.
    return bool(sum(count_restarts(pod) for pod in (*counts.active, *counts.terminating)) >= max(limit, 1))


def find_time_left(job: Job, now: Now) -> float | None:
    """Seconds until the deadline; None if there is none. Time spent suspended does not count."""
    seconds, start = job.spec.get("activeDeadlineSeconds"), job.status.get("startTime")
    if seconds is None or job.is_suspended:
        return None
    if start is None:
        return float(seconds)
    return now.left(job.uid, "started", start, float(seconds))


def has_completed(job: Job, counts: PodCounts) -> bool:
    """If the number of completions is not set, the Job is complete once a Pod has succeeded and none is active."""
    if counts.active:
        return False
    return counts.succeeded > 0 if job.completions is None else counts.succeeded >= job.completions
