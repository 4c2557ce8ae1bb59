"""The installation's retention policy: the ConfigMap `trainmaster-policy` in `kubeflow-system`.

Administrators edit it with any Kubernetes client, a chart renders it from its values, controllers read it through their
view. Keys, all optional, values are strings as in every ConfigMap:

    jobRetentionPolicy            delete_on_completion | retain
    ttlSecondsAfterFinished       seconds that a finished TrainJob is kept where neither it nor its runtime says
    ttlEnforced                   "true": a TrainJob may be kept shorter than that, not longer
    successfulJobsHistoryLimit    keep at most so many Complete TrainJobs in a namespace
    failedJobsHistoryLimit        the same for Failed ones

Reading never fails: the API server refuses an invalid ConfigMap, and if there is one anyway (on a cluster without our
admission) its invalid keys are ignored and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError

NAMESPACE = "kubeflow-system"
NAME = "trainmaster-policy"

DELETE = "delete_on_completion"
RETAIN = "retain"
MOST_SECONDS = 2**31 - 1
"""The maximum of an int32, as for `ttlSecondsAfterFinished` in Kubernetes."""

_RETENTION = "jobRetentionPolicy"
_TTL = "ttlSecondsAfterFinished"
_ENFORCED = "ttlEnforced"
_SUCCESSFUL = "successfulJobsHistoryLimit"
_FAILED = "failedJobsHistoryLimit"
KEYS = (_RETENTION, _TTL, _ENFORCED, _SUCCESSFUL, _FAILED)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    ttl: int | None = None
    """The default TTL in seconds; None keeps jobs until they are deleted."""
    enforced: bool = False
    keep_successful: int | None = None
    keep_failed: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyReading:
    policy: RetentionPolicy
    errors: tuple[FieldError, ...] = ()


def read_policy(config_map: Mapping[str, Any] | None) -> PolicyReading:
    """The policy of the ConfigMap; without one nothing is deleted."""
    data: Mapping[str, str] = (config_map or {}).get("data") or {}
    errors: list[FieldError] = []

    def take(key: str, parse: Callable[[str], Any]) -> Any:
        if key not in data:
            return None
        try:
            return parse(data[key].strip())
        except ValueError as error:
            errors.append(fields.invalid(f"data.{key}", data[key], str(error)))
            return None

    retention = take(_RETENTION, _parse_retention)
    ttl = take(_TTL, parse_seconds)
    enforced = take(_ENFORCED, parse_flag)
    if retention == RETAIN and ttl is not None:
        text = f"has no meaning with {_RETENTION} {RETAIN}, which keeps jobs: remove one of the two"
        errors.append(fields.invalid(f"data.{_TTL}", data[_TTL], text))
        ttl = None
    if retention == DELETE and ttl is None and _TTL not in data:
        ttl = 0
    if enforced and ttl is None and not errors:
        text = f"needs something to enforce: set {_TTL}, or {_RETENTION} {DELETE}"
        errors.append(fields.invalid(f"data.{_ENFORCED}", data[_ENFORCED], text))
    policy = RetentionPolicy(
        ttl=ttl,
        enforced=bool(enforced) and ttl is not None,
        keep_successful=take(_SUCCESSFUL, parse_count),
        keep_failed=take(_FAILED, parse_count),
    )
    return PolicyReading(policy, tuple(errors))


def check_policy(config_map: Mapping[str, Any]) -> list[FieldError]:
    """Errors of the policy. Unknown keys are errors too: a misspelt key would have no effect, which might be noticed
    only weeks later."""
    data: Mapping[str, str] = config_map.get("data") or {}
    unknown = [fields.not_supported(f"data.{key}", key, KEYS) for key in data if key not in KEYS]
    return [*read_policy(config_map).errors, *unknown]


def parse_seconds(text: str) -> int:
    return _parse_number(text, f"must be a whole number of seconds from 0 to {MOST_SECONDS}")


def parse_count(text: str) -> int:
    return _parse_number(text, f"must be a whole number from 0 to {MOST_SECONDS}")


def parse_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError('must be "true" or "false"')
    return text == "true"


def _parse_retention(text: str) -> str:
    if text not in (DELETE, RETAIN):
        raise ValueError(f"must be {DELETE} or {RETAIN}")
    return text


def _parse_number(text: str, rule: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_SECONDS:
        raise ValueError(rule)
    return int(text)
