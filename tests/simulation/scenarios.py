"""Fixed scenarios, in addition to those drawn from seeds: each is one race, with only the faults it needs.

A seed still decides the details (how long calls take, what the processes do), so a few seeds give a few variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.simulation.faults import EMBEDDED, OPERATOR, FaultProfile
from tests.simulation.users import NAMESPACE, UserAction
from trainmaster.api.meta import Object

_LAGGING = FaultProfile(
    mode=OPERATOR,
    crash=0.0,
    crashes=0,
    refuse=0.0,
    lose=0.0,
    server_crashes=0,
    drop=0.0,
    repeat=0.0,
    delay=1.0,
    stall=0.0,
    cut=0.0,
    slow_commit=0.0,
    clock_steps=0,
    hasty=False,
)
"""Nothing fails, but all views lag."""


@dataclass(frozen=True)
class Scenario:
    name: str
    weather: FaultProfile
    deeds: Sequence[UserAction]
    seeds: Sequence[int]
    """Seeds whose processes end in time."""


def _build_job(seconds: int | None, name: str = "job-0") -> Object:
    kept = {} if seconds is None else {"ttlSecondsAfterFinished": seconds}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "runtimeRef": {"name": "sim-plain"},
            "trainer": {"numNodes": 1, "image": "i", "command": ["x"]},
            **kept,
        },
    }


CONFLICT = Scenario(
    "somebody writes to a finished job all the time while its TTL runs out",
    replace(_LAGGING, delay=0.2),
    (
        UserAction(0.5, "submit", "job-0", _build_job(3)),
        *(UserAction(1.0 + n * 0.1, "edit", "job-0") for n in range(250)),
    ),
    (6, 8, 10, 14),
)
"""The reported race: the delete gets a 409, because its resourceVersion is outdated."""

REPLACED = Scenario(
    "a job is made anew while the delete of the old one is on its way",
    replace(_LAGGING, lose=1.0),
    (
        UserAction(0.5, "submit", "job-0", _build_job(1)),
        *(UserAction(3.0 + n * 2.0, "submit", "job-0", _build_job(1)) for n in range(20)),
    ),
    (0, 8, 10, 12),
)
"""A new job has the same name, and a delayed delete for the old one arrives afterwards."""

SET_LATE = Scenario(
    "a TTL is set long after the end, and the wall clock was set in between",
    replace(_LAGGING, delay=0.0, clock_steps=3),
    (
        UserAction(0.5, "submit", "job-0", _build_job(None)),
        UserAction(50.0, "change the TTL", "job-0", {"spec": {"ttlSecondsAfterFinished": 100}}),
    ),
    (16, 18, 26, 28),
)
"""The end was seen before the clock was set, so the step must not count."""

_CRASHING = replace(_LAGGING, mode=EMBEDDED, delay=0.05, crash=0.7, crashes=6, server_crashes=2, slow_commit=0.05)
_JOBS = tuple(f"job-{number}" for number in range(3))
DRAINED = Scenario(
    "the machine is drained again and again while the server crashes",
    _CRASHING,
    (
        *(UserAction(0.5 + n, "submit", name, _build_job(None, name)) for n, name in enumerate(_JOBS[:2])),
        UserAction(3.0, "drain", ""),
        UserAction(5.0, "submit", "job-2", _build_job(None, "job-2")),
        UserAction(8.0, "undrain", ""),
        UserAction(10.0, "drain", ""),
        UserAction(10.5, "undrain", ""),
        UserAction(12.0, "suspend", "job-1"),
        UserAction(14.0, "drain", ""),
        UserAction(15.5, "resume", "job-0"),
        UserAction(20.0, "undrain", ""),
        UserAction(26.0, "drain", ""),
        UserAction(30.0, "uncordon", ""),
    ),
    tuple(range(1, 41, 2)),
)
"""What a drain has suspended is resumed after it, whatever dies in between."""
STAYS_DRAINED = replace(DRAINED, name="the machine stays drained", deeds=DRAINED.deeds[:-1])
