"""Retention in a simulated world: TTLs, an installation policy, finalizers, a history.

Drawn with a separate random sequence, so that worlds without retention do not change. About half of the worlds have it.
TTLs are short compared with the minute of faults, so that most cleanups happen during it; `LONG` does not end within a
run and must keep a job.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmaster.api.lifecycle import policy
from trainmaster.api.meta import Object

LONG = 10_000_000
HOLD = "sim.example/hold"
"""A foreign finalizer."""
TTL_ANNOTATION = "trainmaster.dev/ttl-seconds-after-finished"
ENFORCED_ANNOTATION = "trainmaster.dev/ttl-enforced"
KEPT_RUNTIMES = ("sim-torch", "sim-plain", "sim-stages", "sim-patient")
"""Runtimes whose TTL administrators change."""
_TTLS: tuple[int | None, ...] = (None, None, None, 0, 0, 1, 4, 12, 30, LONG)
_POLICIES: tuple[dict[str, str], ...] = (
    {"ttlSecondsAfterFinished": "10"},
    {"ttlSecondsAfterFinished": "25", "ttlEnforced": "true"},
    {"ttlSecondsAfterFinished": "3", "ttlEnforced": "true", "successfulJobsHistoryLimit": "1"},
    {"jobRetentionPolicy": "delete_on_completion"},
    {"jobRetentionPolicy": "retain", "successfulJobsHistoryLimit": "1", "failedJobsHistoryLimit": "0"},
    {"successfulJobsHistoryLimit": "0", "failedJobsHistoryLimit": "1"},
    {"successfulJobsHistoryLimit": "1", "failedJobsHistoryLimit": "1"},
    {"successfulJobsHistoryLimit": "0", "failedJobsHistoryLimit": "0"},
    {},
)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The kind of world."""

    retention: bool
    """Whether there are TTLs and policies."""
    history: bool
    """Whether there is a history, which must record a job before it is deleted."""
    publish: bool
    """Whether `status.retention` is written; an upstream CRD has no such field."""


def draw_wishes(seed: int) -> RetentionPlan:
    random_ = random.Random(f"retention/{seed}")
    retention = random_.random() < 0.5
    return RetentionPlan(retention, retention and random_.random() < 0.5, not retention or random_.random() < 0.8)


@dataclass(frozen=True, slots=True)
class RetentionAction:
    """A planned action: its time, and its job or runtime."""

    time: float
    what: str
    name: str


def draw_wish_times(seed: int, span: float, submissions: Iterable[tuple[str, float]]) -> Iterator[RetentionAction]:
    """`submissions`: names of jobs and when they are first submitted."""
    if not draw_wishes(seed).retention:
        return
    random_ = random.Random(f"wishes/{seed}")
    for name, begin in submissions:
        for _ in range(random_.choice((0, 0, 1, 2))):
            yield RetentionAction(begin + random_.random() * span / 2, "change the TTL", name)
        if random_.random() < 0.25:
            hold = begin + random_.random() * span / 4
            yield RetentionAction(hold, "hold", name)
            yield RetentionAction(hold + random_.random() * span / 2, "release", name)
        if random_.random() < 0.3:
            yield RetentionAction(begin + 1.0, "make it anew once it is gone", name)
        elif random_.random() < 0.35:
            yield RetentionAction(
                begin + random_.random() * span / 2, random_.choice(("replace", "replace", "delete")), name
            )
    for _ in range(random_.choice((0, 1, 1, 2, 2, 3))):
        yield RetentionAction(
            random_.random() ** 2 * span, random_.choice(("set the policy",) * 4 + ("remove the policy",)), ""
        )
    for _ in range(random_.choice((0, 0, 1, 2))):
        yield RetentionAction(random_.random() * span, "change a runtime's TTL", random_.choice(KEPT_RUNTIMES))


def set_ttl(seed: int, trainjob: Object) -> None:
    """Sets a TTL, in one of the three forms."""
    if not draw_wishes(seed).retention:
        return
    random_ = random.Random(f"ttl/{seed}/{trainjob['metadata']['name']}/{trainjob['spec']['trainer']}")
    seconds = random_.choice(_TTLS)
    if seconds is None:
        return
    match random_.choice(("field", "field", "field", "policy", "annotation")):
        case "field":
            trainjob["spec"]["ttlSecondsAfterFinished"] = seconds
        case "policy":
            trainjob["spec"]["cleanupPolicy"] = {"ttlSecondsAfterFinished": seconds}
        case _:
            trainjob["metadata"]["annotations"] = {TTL_ANNOTATION: str(seconds)}


def draw_ttl_change(random_: random.Random) -> Object:
    """A patch of a TrainJob: a longer, shorter, or no TTL. One form at a time."""
    seconds = random_.choice(_TTLS)
    return {
        "metadata": {"annotations": {TTL_ANNOTATION: None}},
        "spec": {"ttlSecondsAfterFinished": seconds, "cleanupPolicy": None},
    }


def draw_runtime_change(random_: random.Random) -> Object:
    """A patch of a runtime."""
    seconds = random_.choice(_TTLS)
    enforced = "true" if random_.random() < 0.3 else None
    return {
        "metadata": {"annotations": {ENFORCED_ANNOTATION: enforced}},
        "spec": {"ttlSecondsAfterFinished": seconds},
    }


def draw_policy(random_: random.Random) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": policy.NAME, "namespace": policy.NAMESPACE},
        "data": dict(random_.choice(_POLICIES)),
    }
