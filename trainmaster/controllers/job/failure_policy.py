"""spec.podFailurePolicy: what the end of a Pod means. Pure: a Pod and the rules, no counters.

The first rule that matches decides. A failed Pod that no rule matches counts as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api.meta import Object

COUNT = "Count"
IGNORE = "Ignore"
FAIL_INDEX = "FailIndex"
FAIL_JOB = "FailJob"


@dataclass(frozen=True, slots=True)
class PodFailureVerdict:
    action: str = COUNT
    message: str = ""
    """Of FailJob: why, in upstream's words."""
    is_matched: bool = False


def judge(job: Object, pod: Object) -> PodFailureVerdict:
    for position, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        cause = _find_cause(pod, rule)
        if cause is not None:
            action = rule["action"]
            message = f"{cause} matching {action} rule at index {position}" if action == FAIL_JOB else ""
            return PodFailureVerdict(action, message, is_matched=True)
    return PodFailureVerdict()


def _find_cause(pod: Object, rule: Mapping[str, Any]) -> str | None:
    meta, status = pod["metadata"], pod.get("status") or {}
    name = f"{meta['namespace']}/{meta['name']}"
    if (codes := rule.get("onExitCodes")) is not None:
        for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
            code = _find_exit_code(container)
            if code is not None and _matches(code, container, codes):
                return f"Container {container['name']} for pod {name} failed with exit code {code}"
        return None
    condition = _find_condition(status.get("conditions") or (), rule.get("onPodConditions") or ())
    return None if condition is None else f"Pod {name} has condition {condition}"


def _find_exit_code(container: Mapping[str, Any]) -> int | None:
    """Of a container that ended, other than 0."""
    ended = (container.get("state") or {}).get("terminated") or {}
    return ended.get("exitCode") or None


def _matches(code: int, container: Mapping[str, Any], codes: Mapping[str, Any]) -> bool:
    if codes.get("containerName", container["name"]) != container["name"]:
        return False
    return bool((code in codes["values"]) == (codes["operator"] == "In"))


def _find_condition(conditions: Iterable[Mapping[str, Any]], patterns: Iterable[Mapping[str, Any]]) -> str | None:
    wanted = {(pattern["type"], pattern.get("status", "True")) for pattern in patterns}
    for condition in conditions:
        if (condition.get("type"), condition.get("status")) in wanted:
            return str(condition["type"])
    return None
