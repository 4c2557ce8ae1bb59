"""spec.podFailurePolicy: how the end of a Pod is counted. Pure: depends only on the Pod and the rules.

The first rule that matches decides. A failed Pod that matches no rule is counted as usual.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod, read_terminated

COUNT = "Count"
IGNORE = "Ignore"
FAIL_INDEX = "FailIndex"
FAIL_JOB = "FailJob"


@dataclass(frozen=True, slots=True)
class PodFailureVerdict:
    action: str = COUNT
    message: str = ""
    """For FailJob: the reason, in upstream's words."""
    is_matched: bool = False


def judge(job: Job, pod: Pod) -> PodFailureVerdict:
    for position, rule in enumerate(list_items(job.spec, "podFailurePolicy", "rules")):
        cause = _find_cause(pod, rule)
        if cause is not None:
            action = rule["action"]
            message = f"{cause} matching {action} rule at index {position}" if action == FAIL_JOB else ""
            return PodFailureVerdict(action, message, is_matched=True)
    return PodFailureVerdict()


def _find_cause(pod: Pod, rule: Fields) -> str | None:
    name = f"{pod.namespace}/{pod.name}"
    if (codes := rule.get("onExitCodes")) is not None:
        for container in (*pod.container_statuses, *pod.init_container_statuses):
            code = _find_exit_code(container)
            if code is not None and _matches(code, container, codes):
                return f"Container {container['name']} for pod {name} failed with exit code {code}"
        return None
    condition = _find_condition(pod.conditions, list_items(rule, "onPodConditions"))
    return None if condition is None else f"Pod {name} has condition {condition}"


def _find_exit_code(container: Fields) -> int | None:
    """The exit code of a terminated container, unless it is 0."""
    return read_terminated(container).get("exitCode") or None


def _matches(code: int, container: Fields, codes: Fields) -> bool:
    if codes.get("containerName", container["name"]) != container["name"]:
        return False
    return bool((code in codes["values"]) == (codes["operator"] == "In"))


def _find_condition(conditions: Iterable[Fields], patterns: Iterable[Fields]) -> str | None:
    wanted = {(pattern["type"], pattern.get("status", "True")) for pattern in patterns}
    for condition in conditions:
        if (condition.get("type"), condition.get("status")) in wanted:
            return str(condition["type"])
    return None
