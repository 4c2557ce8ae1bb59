"""Whether a TrainJob is over, for modules that cannot import its model (`jobs.models.training`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FINISHED = ("Complete", "Failed")


def is_finished(trainjob: Mapping[str, Any]) -> bool:
    for condition in (trainjob.get("status") or {}).get("conditions") or ():
        if condition.get("type") in FINISHED and condition.get("status") == "True":
            return True
    return False
