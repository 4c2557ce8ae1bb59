"""The status of a TrainJob, from its own spec and its JobSet. Conditions are upstream's and no others.

Clients of today read "running" from an empty list of conditions, so nothing is added while a job runs. Why a job does
not run stands in `status.waiting`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainmaster.api.conditions import Condition, build_condition, is_true, list_conditions, set_condition
from trainmaster.api.meta import Fields, Object
from trainmaster.api.training.reports import is_left_over
from trainmaster.controllers.trainjob.verdict import describe
from trainmaster.controllers.waiting import Waiting, find_annotated
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob

_COUNTS = ("name", "ready", "succeeded", "failed", "active", "suspended")


def is_told(trainjob: TrainJob, jobset: JobSet | None) -> bool:
    """Whether the status of a finished TrainJob says all there is to say. Cheaper than building it anew."""
    status = trainjob.status
    if "waiting" in status or trainjob.is_suspended != trainjob.is_true("Suspended"):
        return False
    if jobset is not None:
        after: Object = {"jobsStatus": status.get("jobsStatus")}
        _set_counts(after, jobset.replicated_statuses)
        return bool(after["jobsStatus"] == status.get("jobsStatus"))
    return not any(entry.get("active") or entry.get("ready") for entry in trainjob.steps)


def build_status(
    trainjob: TrainJob,
    jobset: JobSet | None,
    waiting: Waiting | None,
    now: datetime,
    *,
    suspended: bool | None = None,
    failure: Fields | None = None,
    began: str = "",
) -> Object:
    """The whole status as it should be; fields of others are kept.

    `suspended` is whether the JobSet is; None means as the TrainJob asks. A verdict that is stored is never changed.
    `failure` is what went wrong in the JobSet's attempts so far. What was reported (`trainerStatus`) before the present
    attempt `began` goes: it says where another one was.
    """
    status: Object = dict(trainjob.status)
    finished = trainjob.is_finished
    suspended = trainjob.is_suspended if suspended is None else suspended
    conditions = _set_suspended(list_conditions(trainjob.raw), suspended, now)
    if jobset is not None:
        if not finished:
            conditions = _fold_jobset(conditions, jobset, failure)
        _set_counts(status, jobset.replicated_statuses)
    elif finished and status.get("jobsStatus"):
        # Nothing of it runs any more.
        status["jobsStatus"] = [{**entry, "active": 0, "ready": 0} for entry in status["jobsStatus"]]
    if not finished and "trainerStatus" in status and is_left_over(status["trainerStatus"], began):
        del status["trainerStatus"]
    if not finished:
        _set_failure(status, None if is_true(conditions, "Complete") else failure)
    if conditions:
        status["conditions"] = conditions
    reason = _decide_waiting(status, jobset, waiting, now)
    if is_true(conditions, "Complete") or is_true(conditions, "Failed") or reason is None:
        status.pop("waiting", None)
        if not status and trainjob.status:
            # The schema has no empty status, and what no longer holds must go before there is anything else to say.
            status["jobsStatus"] = []
    else:
        status["waiting"] = reason
    return status


def fail(trainjob: TrainJob, reason: str, message: str, now: datetime) -> Object:
    """The status with a verdict of our own."""
    status: Object = dict(trainjob.status)
    failed = build_condition("Failed", True, reason, message, now)
    status["conditions"] = set_condition(list_conditions(trainjob.raw), failed)
    status.pop("waiting", None)
    return status


def _set_counts(status: Object, entries: Iterable[Fields]) -> None:
    counts = [{name: entry.get(name, 0) for name in _COUNTS} for entry in entries]
    if counts or status.get("jobsStatus"):
        status["jobsStatus"] = counts


def _set_suspended(conditions: list[Condition], suspended: bool, now: datetime) -> list[Condition]:
    if suspended:
        condition = build_condition("Suspended", True, "Suspended", "TrainJob is suspended", now)
        return set_condition(conditions, condition)
    if is_true(conditions, "Suspended"):
        return set_condition(conditions, build_condition("Suspended", False, "Resumed", "TrainJob is resumed", now))
    return conditions


def _set_failure(status: Object, failure: Fields | None) -> None:
    """Of a job that has recovered, events tell the story; a JobSet that is made anew counts from the beginning."""
    if failure is not None:
        status["failure"] = dict(failure)
    else:
        status.pop("failure", None)


def _fold_jobset(conditions: list[Condition], jobset: JobSet, failure: Fields | None) -> list[Condition]:
    """Reasons and texts are the JobSet's. After that of a failure stands who failed first."""
    for source, target in (("Completed", "Complete"), ("Failed", "Failed")):
        condition = jobset.find_condition(source)
        if condition is None or condition.get("status") != "True":
            continue
        new = {**condition, "type": target}
        if target == "Failed" and failure is not None:
            new["message"] = f"{condition.get('message', '')}; {describe(failure)}"
        conditions = set_condition(conditions, new)
    return conditions


def _decide_waiting(status: Object, jobset: JobSet | None, waiting: Waiting | None, now: datetime) -> Object | None:
    if waiting is not None:
        return waiting.to_wire(status.get("waiting"), now)
    annotated = find_annotated(jobset.raw) if jobset is not None else None
    return dict(annotated) if annotated is not None else None
