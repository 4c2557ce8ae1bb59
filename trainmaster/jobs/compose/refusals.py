"""Explains why a server refused a job: which part of the request, and which common cause. Pure.

Callers phrase both in their own terms: the command line names options, REST points into the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from trainmaster.api.labels import PACKAGES
from trainmaster.api.reading import read_text
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import NEVER

_PARTS: Mapping[str, str] = {
    "spec.trainer.numNodes": "nodes",
    "spec.trainer.resourcesPerNode": "resources",
    "spec.trainer.env": "env",
    "spec.runtimeRef": "runtime",
    "spec.ttlSecondsAfterFinished": "ttl_seconds",
    "spec.activeDeadlineSeconds": "deadline_seconds",
    "metadata.labels": "labels",
    "metadata.name": "name",
}
"""Fields of a TrainJob and what they were compiled from: fields of a `JobRequest`, and `runtime`."""


class RefusalCause(Enum):
    EXISTS = "exists"
    NO_NAMESPACE = "no-namespace"
    NO_RUNTIME = "no-runtime"
    QUOTA = "quota"
    """It exceeds what is left of a quota now."""
    TOO_LARGE = "too-large"
    """It exceeds the quota by itself."""
    WEBHOOK = "webhook"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RefusedPart:
    part: str
    """A field of `JobRequest`, `runtime`, or "" if it comes from nothing in the request."""
    message: str


def judge_refusal(error: StatusError) -> RefusalCause:
    if error.reason == "AlreadyExists":
        return RefusalCause.EXISTS
    if error.reason == "NotFound":
        return RefusalCause.NO_NAMESPACE
    if "must be created before the TrainJob" in error.message:
        return RefusalCause.NO_RUNTIME
    if NEVER in error.message:
        return RefusalCause.TOO_LARGE
    if "exceeded quota" in error.message:
        return RefusalCause.QUOTA
    return RefusalCause.WEBHOOK if is_denied(error) else RefusalCause.OTHER


def is_denied(error: StatusError) -> bool:
    """Whether an admission webhook refused it."""
    return "denied the request" in error.message


def list_refused_parts(error: StatusError) -> list[RefusedPart]:
    return [
        RefusedPart(find_part(read_text(cause, "field")), read_text(cause, "message") or error.message)
        for cause in error.causes
    ]


def find_part(path: str) -> str:
    """ "" if it was not part of the request."""
    if path.endswith(f"[{PACKAGES}]"):
        return "packages"
    return next((part for prefix, part in _PARTS.items() if path.startswith(prefix)), "")
