"""Progress reports of training code (Trainer's protocol): their format, who may send them, and what is stored.

Pure, and shared by the API server of embedded mode and the operator's status server. Error messages begin with
Trainer's text.

The stored time is always later than the creation of the JobSet and of the reporting Pod's Job, even if clocks are
wrong. So the TrainJob controller can recognise reports of earlier attempts by comparing two stored times, and never
removes those of the current attempt.
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
STEP, TOTAL = "current_step", "total_steps"
"""The metrics in which `trainmaster.report` and Hugging Face's Trainer say how far they are."""
VOLUME = "kubeflow-trainer-token"
FOLDER = "/var/run/secrets/kubeflow/trainer"
"""The directory with a container's token and the server's certificates."""
LARGEST = 65536
_FIELDS = ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")
_AHEAD = timedelta(minutes=1)
"""If the stored time is further in the future than this, a clock was wrong, and new reports are not ignored."""


@dataclass(frozen=True, slots=True)
class ReportingPod:
    """The Pod that a token is bound to."""

    pod: str
    began: str
    """The creation time of its Job; "" if it has none."""
    jobset_uid: str
    attempt: int
    started: str = ""
    """When the last of its containers started; "" if that is unknown."""


def build_path(namespace: str, name: str) -> str:
    return f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def build_audience(namespace: str, name: str) -> str:
    """The required audience of a token."""
    return f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def refuse_sender() -> StatusError:
    return StatusError(403, "Forbidden", "Forbidden")


def refuse_name() -> StatusError:
    return StatusError(404, "NotFound", "Train job not found")


def parse(body: bytes) -> Object | None:
    """The report, without unknown fields; None if there is none."""
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
    """The value if it has the right type; the schema checks its range."""
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
    """The name of the Pod's Job; "" if it has none."""
    return str((pod["metadata"].get("labels") or {}).get(JOB_NAME, ""))


def read_reporter(pod: Object, job: Object | None) -> ReportingPod:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    attempt = labels.get(RESTART_ATTEMPT, "")
    began = "" if job is None else str(job["metadata"]["creationTimestamp"])
    number = int(attempt) if attempt.isascii() and attempt.isdigit() else 0
    return ReportingPod(meta["name"], began, labels.get(JOBSET_UID, ""), number, find_started(pod))


def find_started(pod: Mapping[str, Any]) -> str:
    """When the last of its running containers started; "" if none runs."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = ((one.get("state") or {}).get("running") or {} for one in statuses)
    return max((str(one.get("startedAt") or "") for one in running), default="")


def check_reporter(reporter: ReportingPod, trainjob: Object, jobset: Object | None) -> None:
    """A Pod may report only for its own TrainJob, and only while its attempt is the current one."""
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
    """The time that a report must be later than."""
    began = "" if jobset is None else str(jobset["metadata"]["creationTimestamp"])
    return began if reporter is None else max(began, reporter.began)


def find_program_start(began: str, reporter: ReportingPod | None) -> str:
    """When the program that reports was started. `began`: when its attempt began, which includes the time that it
    waited for its turn."""
    return began if reporter is None else reporter.started or began


def decide(report: Object, trainjob: Object, now: datetime, began: str = "") -> Object | None:
    """The report to store; None if a later one is already stored. 409 if the job has ended."""
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


def build_patch(report: Mapping[str, Any], pace: Mapping[str, Any] | None) -> Object:
    """A merge patch that replaces the previous report completely. `pace`: as `PaceMeter` measures it."""
    percent = report.get("progressPercentage")
    shown = None if percent is None else f"{percent}%"
    return {"status": {"trainerStatus": {key: report.get(key) for key in _FIELDS}, "progress": shown, "pace": pace}}


def is_left_over(trainer_status: Mapping[str, Any], began: str) -> bool:
    """Whether the report is older than `began`, the start of the current attempt."""
    return str(trainer_status.get("lastUpdatedTime") or "") <= began
