"""Common printer columns: name, age, lists of labels, conditions.

kubectl prints cells as the server sends them, so these functions decide what `kubectl get` shows. A cell is a function
of the object and of now, in seconds since 1970; how long a time reads is decided in `tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainmaster.api.declaring.kinds import Column
from trainmaster.api.declaring.tables import AGE, NAME, UNKNOWN, render_age, render_duration
from trainmaster.api.meta import Object

__all__ = [
    "AGE",
    "CREATED",
    "CUSTOM_AGE",
    "NAME",
    "NONE",
    "UNKNOWN",
    "find_condition",
    "format_labels",
    "is_condition_true",
    "join",
    "render_age",
    "render_duration",
    "seconds_of",
]

NONE = "<none>"


def seconds_of(time: str) -> float:
    """A stored time in seconds since 1970."""
    return datetime.fromisoformat(time).timestamp()


def _get_created(obj: Object, now: float) -> Any:
    return obj["metadata"].get("creationTimestamp")


CREATED = Column("Created At", _get_created, type="date", description="When the object was created.")
CUSTOM_AGE = replace(AGE, type="date")
"""The age column of custom kinds; their CRDs require the type date."""


def format_labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) if labels else NONE


def join(words: Iterable[str]) -> str:
    return ",".join(words)


def find_condition(obj: Object, kind: str) -> Object | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            found: Object = condition
            return found
    return None


def is_condition_true(obj: Object, kind: str) -> bool:
    condition = find_condition(obj, kind)
    return condition is not None and condition.get("status") == "True"
