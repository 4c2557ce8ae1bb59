"""Reports of training code (Trainer's progress protocol): what one must look like, who may send it, what is stored.

Pure, and the same for the API server of one machine and for the operator's status server on a cluster. Errors have
Trainer's texts first: its clients never show them, people who try with curl do.

What is stored is always later than the creation of the JobSet and of the Job whose Pod reports, whatever clocks say. So
the TrainJob controller can tell what an earlier attempt has left by comparing two stored times, and never takes away
what the present one has said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from trainmaster.api.labels import JOB_NAME, JOBSET_UID, RESTART_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.api.training.ends import is_finished
from trainmaster.kit.clock import format_time, parse_time

MANAGER = "trainer-status"
VOLUME = "kubeflow-trainer-token"
FOLDER = "/var/run/secrets/kubeflow/trainer"
"""Where a container finds its token and the server's certificates."""
LARGEST = 65536
_FIELDS = ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")
_AHEAD = timedelta(minutes=1)
"""A stored time that is further ahead than this is no reason to ignore a report: some clock was wrong."""


@dataclass(frozen=True, slots=True)
class ReportingPod:
    """The Pod that a token is bound to."""

    pod: str
    began: str
    """When its Job was made; "" when it has none."""
    jobset_uid: str
    attempt: int


def build_path(namespace: str, name: str) -> str:
    return f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def build_audience(namespace: str, name: str) -> str:
    """What a token must be for."""
    return f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def refuse_sender() -> StatusError:
    return StatusError(403, "Forbidden", "Forbidden")


def refuse_name() -> StatusError:
    return StatusError(404, "NotFound", "Train job not found")


def parse(body: bytes) -> Object | None:
    """The report, without fields that are not Trainer's; None when there is none."""
    if len(body) > LARGEST:
        raise StatusError(413, "RequestEntityTooLarge", "Payload too large")
    try:
        payload = orjson.loads(body)
        report = payload.get("trainerStatus")
        if report is None:
            return None
        return {key: value for key in _FIELDS if (value := _check(key, report.get(key))) is not None}
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError, OverflowError):
        raise StatusError(422, "Invalid", "Invalid payload") from None


def _check(key: str, value: Any) -> Any:
    """The value when it is of the right type; whether it is in range says the schema."""
    if value is None:
        return None
    if key == "metrics":
        return [_check_metric(metric) for metric in value]
    if key == "lastUpdatedTime":
        return format_time(parse_time(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(key)
    return value


def _check_metric(metric: Any) -> Object:
    pair = {key: metric.get(key, "") for key in ("name", "value")}
    if not all(isinstance(value, str) for value in pair.values()):
        raise TypeError("metrics")
    return pair


def read_job_name(pod: Object) -> str:
    """Of the Job that the Pod belongs to; "" when it belongs to none."""
    return str((pod["metadata"].get("labels") or {}).get(JOB_NAME, ""))


def read_reporter(pod: Object, job: Object | None) -> ReportingPod:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    attempt = labels.get(RESTART_ATTEMPT, "")
    began = "" if job is None else str(job["metadata"]["creationTimestamp"])
    number = int(attempt) if attempt.isascii() and attempt.isdigit() else 0
    return ReportingPod(meta["name"], began, labels.get(JOBSET_UID, ""), number)


def check_reporter(reporter: ReportingPod, trainjob: Object, jobset: Object | None) -> None:
    """A Pod reports for the TrainJob that it works for, while its attempt is the present one."""
    if jobset is None or jobset["metadata"]["uid"] != reporter.jobset_uid or not _is_of(jobset, trainjob):
        raise StatusError(403, "Forbidden", f"Forbidden: Pod {reporter.pod} does not work for this TrainJob")
    now = (jobset.get("status") or {}).get("restarts") or 0
    if reporter.attempt < now:
        text = f"Pod {reporter.pod} belongs to attempt {reporter.attempt}, and the job is at attempt {now}"
        raise StatusError(409, "Conflict", text)


def _is_of(jobset: Object, trainjob: Object) -> bool:
    uid = trainjob["metadata"]["uid"]
    owners = jobset["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def find_beginning(jobset: Object | None, reporter: ReportingPod | None) -> str:
    """What a report must be later than."""
    began = "" if jobset is None else str(jobset["metadata"]["creationTimestamp"])
    return began if reporter is None else max(began, reporter.began)


def decide(report: Object, trainjob: Object, now: datetime, began: str = "") -> Object | None:
    """What to store; None when a later report has been stored already. 409 once the job has ended."""
    if is_finished(trainjob):
        raise StatusError(409, "Conflict", f'TrainJob "{trainjob["metadata"]["name"]}" has ended')
    moment = report.get("lastUpdatedTime")
    if moment is None:
        return report
    if moment <= began:
        moment = format_time(parse_time(began) + timedelta(seconds=1))
        report = {**report, "lastUpdatedTime": moment}
    before = (trainjob.get("status") or {}).get("trainerStatus") or {}
    known = before.get("lastUpdatedTime") or ""
    is_late = moment < known and known <= format_time(now + _AHEAD)
    return None if is_late else report


def build_patch(report: Mapping[str, Any]) -> Object:
    """A merge patch keeps what it does not name, and a report replaces the one before."""
    return {"status": {"trainerStatus": {key: report.get(key) for key in _FIELDS}}}


def is_left_over(trainer_status: Mapping[str, Any], began: str) -> bool:
    """Whether it was said before the present attempt began (a stored time)."""
    return str(trainer_status.get("lastUpdatedTime") or "") <= began
