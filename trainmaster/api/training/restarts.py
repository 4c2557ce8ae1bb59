"""Restarts of a job that has not finished. Pure.

A restart is one write: the annotation `trainmaster.dev/restart` of the TrainJob is the number of the attempt to start.
The controller replaces the JobSet if its number is lower. So a restart survives a crash, repeating it has no further
effect, and finished jobs are not restarted. A restart that the controller itself decides, because of a stall, is the
same number in `status.stalls`, which counts it in the same write; on a cluster an operator may write only the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import FIRST_ATTEMPT, RESTART

Thing = Mapping[str, Any]
_MOST = 2**31 - 1


def parse_attempt(text: str) -> int:
    """ValueError if it is not a valid attempt number."""
    number = find_count(text)
    if number is None or number > _MOST:
        raise ValueError("must be a number of an attempt, 0 or above")
    return number


def read_wanted(trainjob: Thing) -> int:
    """The requested first attempt of the TrainJob's JobSet; invalid values are ignored."""
    return max(_read(trainjob, RESTART), read_count(trainjob).attempt)


def read_first(obj: Thing | None) -> int:
    """The first attempt of a JobSet, or of the JobSet that a Pod belongs to."""
    return 0 if obj is None else _read(obj, FIRST_ATTEMPT)


def is_asked_for(trainjob: Thing, jobset: Thing) -> bool:
    return read_wanted(trainjob) > read_first(jobset)


def decide_next(trainjob: Thing, jobset: Thing | None) -> int:
    """The number for the next restart, after all attempts so far."""
    if jobset is None:
        return read_wanted(trainjob) + 1
    restarts = int((jobset.get("status") or {}).get("restarts") or 0)
    return max(read_wanted(trainjob), read_first(jobset) + restarts) + 1


@dataclass(frozen=True, slots=True)
class StallCount:
    """`status.stalls`: the restarts because of stalls since the job last got further than before."""

    restarts: int = 0
    attempt: int = 0
    """The attempt that the last of them asks for."""
    furthest: str = ""
    """`status.pace.furthest` at that time."""

    def to_wire(self) -> dict[str, int | str]:
        return {"restarts": self.restarts, "attempt": self.attempt, "furthest": self.furthest}


def read_count(trainjob: Thing) -> StallCount:
    found = (trainjob.get("status") or {}).get("stalls") or {}
    return StallCount(found.get("restarts") or 0, found.get("attempt") or 0, found.get("furthest") or "")


def _read(obj: Thing, key: str) -> int:
    try:
        return parse_attempt((obj["metadata"].get("annotations") or {}).get(key, "0"))
    except ValueError:
        return 0
