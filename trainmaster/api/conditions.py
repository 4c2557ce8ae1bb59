"""Reading and setting conditions in a list. Pure: a new list is returned, the given one is never changed.

Two flavours exist on the wire: `metav1.Condition` (TrainJob, JobSet) and the older one of Jobs, which also carries
`lastProbeTime`. The order of first appearance is kept, because printer columns show the last element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_status
from trainmaster.kit.clock import format_time

Condition = dict[str, Any]


def list_conditions(obj: Fields) -> list[Condition]:
    return list(read_status(obj).get("conditions") or ())


def find_condition(conditions: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    # Plain loops for speed: called about two hundred times per TrainJob.
    for condition in conditions:
        if condition.get("type") == kind:
            return condition
    return None


def is_true(conditions: Sequence[Mapping[str, Any]], kind: str) -> bool:
    for condition in conditions:
        if condition.get("type") == kind:
            return bool(condition.get("status") == "True")
    return False


def set_condition(conditions: Sequence[Fields], new: Condition) -> list[Fields]:
    """Replaces or appends. lastTransitionTime is kept if the status does not change."""
    result: list[Fields] = []
    found = False
    for old in conditions:
        if old.get("type") != new["type"]:
            result.append(old)
            continue
        found = True
        if old.get("status") == new["status"]:
            new = {**new, "lastTransitionTime": old.get("lastTransitionTime", new["lastTransitionTime"])}
        result.append(new)
    if not found:
        result.append(new)
    return result


def build_condition(kind: str, status: bool, reason: str, message: str, now: datetime) -> Condition:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
    }
