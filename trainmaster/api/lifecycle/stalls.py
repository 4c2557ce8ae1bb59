"""Stalls of a running TrainJob: how long its steps may stand still, and what happens then. Pure.

The rules are the installation's settings and what its process knows beyond the stored objects; the TrainJob controller
applies them (`controllers.trainjob.stalls`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from trainmaster.api.labels import ON_STALL
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_annotations

StallPolicy: TypeAlias = Literal["observe", "restart", "fail"]
OBSERVE: Final = "observe"
RESTART: Final = "restart"
FAIL: Final = "fail"
POLICIES: tuple[StallPolicy, ...] = get_args(StallPolicy)

STOPPED, SAVING = "stopped", "saving"
"""Why steps may stand still: a person has stopped a rank's processes; a checkpoint is being written."""


@dataclass(frozen=True, slots=True)
class JobSign:
    """What a machine sees of a job that runs on it, besides its reports."""

    idle_seconds: float | None = None
    """For how long it has neither printed anything nor used CPU or GPU; None if that is not known yet."""
    excused_seconds: float = math.inf
    """How long ago there was last a reason for standing still."""
    excuse: str = ""
    """STOPPED or SAVING; "" if there was none."""


def _find_no_sign(uid: str) -> JobSign | None:
    return None


def _count_for_ever() -> float:
    return math.inf


EVIDENCE = "evidence"
"""The effect that keeps what the ranks of a job do at this moment."""


@dataclass(frozen=True, slots=True)
class StallRules:
    seconds: float = 300.0
    """How long steps may stand still at least."""
    phase_seconds: float = 1800.0
    """The same for what is expected to take long: a phase other than training, the first step, the time after the last
    one."""
    policy: StallPolicy = OBSERVE
    find_sign: Callable[[str], JobSign | None] = _find_no_sign
    """By the uid of a TrainJob; None if it does not run on this machine, or was not looked at yet."""
    sees_use: bool = False
    """Whether `find_sign` will know something about each job that runs."""
    keeps_evidence: bool = False
    """Whether the effect `EVIDENCE` can be performed."""
    count_watched: Callable[[], float] = _count_for_ever
    """Seconds for which reports have been taken here without a pause. A job cannot stall for longer."""


def parse_policy(text: str) -> StallPolicy:
    """ValueError if there is no such policy."""
    for policy in POLICIES:
        if text == policy:
            return policy
    raise ValueError(f"must be {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")


def read_policy(trainjob: Fields, default: StallPolicy) -> StallPolicy:
    """An invalid annotation, as a cluster without our webhooks may have it, counts as none."""
    try:
        return parse_policy(read_annotations(trainjob)[ON_STALL])
    except (KeyError, ValueError):
        return default
