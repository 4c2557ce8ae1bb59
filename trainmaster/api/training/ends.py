"""Whether a TrainJob is over, and since when. One place, because controllers, history and commands all ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FINISHED = ("Complete", "Failed")


def is_finished(trainjob: Mapping[str, Any]) -> bool:
    for condition in (trainjob.get("status") or {}).get("conditions") or ():
        if condition.get("type") in FINISHED and condition.get("status") == "True":
            return True
    return False


def find_end(trainjob: Mapping[str, Any]) -> tuple[str, str] | None:
    """(Complete or Failed, when); None while it is not over."""
    for condition in (trainjob.get("status") or {}).get("conditions") or ():
        if condition.get("type") in FINISHED and condition.get("status") == "True":
            # A controller that leaves the time out has at least made the object before it ended.
            return condition["type"], condition.get("lastTransitionTime") or trainjob["metadata"]["creationTimestamp"]
    return None
