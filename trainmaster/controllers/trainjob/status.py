"""The status of a TrainJob, from its own spec and its JobSet. It has only upstream's conditions.

Existing clients take an empty list of conditions to mean "running", so no condition is added while a job runs. If a job
is not running, `status.waiting` says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainmaster.api.conditions import build_condition
from trainmaster.api.meta import Fields, Object
from trainmaster.api.training.pace import leave_attempt
from trainmaster.api.training.reports import is_left_over
from trainmaster.controllers.failures import describe
from trainmaster.controllers.waiting import Waiting, find_annotated
from trainmaster.engine.draft import ObjectDraft
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob

_COUNTS = ("name", "ready", "succeeded", "failed", "active", "suspended")


def is_status_current(trainjob: TrainJob, jobset: JobSet | None) -> bool:
    """Whether the status of a finished TrainJob is up to date. Cheaper than building the status again."""
    status = trainjob.status
    if "waiting" in status or trainjob.is_suspended != trainjob.is_true("Suspended"):
        return False
    if jobset is not None:
        after: Object = {"jobsStatus": status.get("jobsStatus")}
        _set_counts(after, jobset.replicated_statuses)
        return bool(after["jobsStatus"] == status.get("jobsStatus"))
    return not any(entry.get("active") or entry.get("ready") for entry in trainjob.steps)


def follow_jobset(draft: ObjectDraft, trainjob: TrainJob, jobset: JobSet | None, now: datetime) -> None:
    """Updates the counts of a finished TrainJob from what is left of the JobSet; the outcome does not change."""
    _set_suspended(draft, trainjob.is_suspended, now)
    if jobset is not None:
        _set_counts(draft.status, jobset.replicated_statuses)
    elif steps := trainjob.steps:
        # Nothing is running any more.
        draft.status["jobsStatus"] = [{**entry, "active": 0, "ready": 0} for entry in steps]
    draft.status.pop("waiting", None)


def set_status(
    draft: ObjectDraft,
    trainjob: TrainJob,
    jobset: JobSet | None,
    waiting: Waiting | None,
    now: datetime,
    *,
    below: Waiting | None = None,
    failure: Fields | None = None,
    began: str = "",
) -> None:
    """Sets the whole status of a TrainJob that has not finished; fields of other writers are kept.

    While the job waits, its Suspended condition follows the JobSet, otherwise its own spec. `below`: why its Pods do
    not run, if the JobSet does not say it. `failure` says what failed in the attempts so far. A report
    (`trainerStatus`) from before the current attempt `began` is removed.
    """
    status = draft.status
    suspended = trainjob.is_suspended if waiting is None or jobset is None else jobset.is_suspended
    _set_suspended(draft, suspended, now)
    if jobset is not None:
        _copy_conditions(draft, jobset, failure)
        _set_counts(status, jobset.replicated_statuses)
    if "trainerStatus" in status and is_left_over(status["trainerStatus"], began):
        del status["trainerStatus"]
        status.pop("progress", None)
        _set(status, "pace", leave_attempt(status) or None)
    is_complete = draft.is_true("Complete")
    reason = None if is_complete or draft.is_true("Failed") else _decide_waiting(status, jobset, waiting, below, now)
    # Removed when the job completes; events still show what happened.
    _set(status, "failure", None if is_complete else failure)
    if is_complete:
        status.pop("repeated", None)
    _set(status, "waiting", reason)
    if not status and trainjob.status:
        # The schema does not allow an empty status, but outdated fields have to be removed.
        status["jobsStatus"] = []


def fail(draft: ObjectDraft, reason: str, message: str, now: datetime) -> None:
    """Fails the job for a reason of our own."""
    draft.set_condition(build_condition("Failed", True, reason, message, now))
    for name in ("waiting", "stalled"):
        draft.status.pop(name, None)


def has_failed_for(trainjob: TrainJob, *reasons: str) -> bool:
    """Whether the job failed for one of these reasons."""
    failed = trainjob.find_condition("Failed")
    return failed is not None and failed.get("status") == "True" and failed.get("reason") in reasons


def _set_counts(status: Object, entries: Iterable[Fields]) -> None:
    counts = [{name: entry.get(name, 0) for name in _COUNTS} for entry in entries]
    if counts or status.get("jobsStatus"):
        status["jobsStatus"] = counts


def _set(status: Object, name: str, value: Fields | None) -> None:
    if value is not None:
        status[name] = dict(value)
    else:
        status.pop(name, None)


def _set_suspended(draft: ObjectDraft, suspended: bool, now: datetime) -> None:
    if suspended:
        draft.set_condition(build_condition("Suspended", True, "Suspended", "TrainJob is suspended", now))
    elif draft.is_true("Suspended"):
        draft.set_condition(build_condition("Suspended", False, "Resumed", "TrainJob is resumed", now))


def _copy_conditions(draft: ObjectDraft, jobset: JobSet, failure: Fields | None) -> None:
    """Reasons and messages are the JobSet's. For a failure, the rank that failed first is appended to the message."""
    for source, target in (("Completed", "Complete"), ("Failed", "Failed")):
        condition = jobset.find_condition(source)
        if condition is None or condition.get("status") != "True":
            continue
        new = {**condition, "type": target}
        if target == "Failed" and failure is not None:
            new["message"] = f"{condition.get('message', '')}; {describe(failure)}"
        draft.set_condition(new)


def _decide_waiting(
    status: Object, jobset: JobSet | None, waiting: Waiting | None, below: Waiting | None, now: datetime
) -> Fields | None:
    annotated = find_annotated(jobset.raw) if jobset is not None and waiting is None else None
    if annotated is not None:
        return annotated
    reason = waiting or below
    return None if reason is None else reason.to_wire(status.get("waiting"), now)
