"""The pace of a job, from its progress reports: how far it is, since when, and how long a step took at most.

`status.pace` is written together with each report. Everything that asks whether a job still gets on reads it: whether
its steps stand still, whether an attempt has come further than the ones before.

The position is the reported step; of a program that reports only a percentage, that. Any change of it counts as an
advance, because programs may count anew in a second phase; the furthest position only grows. Durations are measured by
the server and do not include times at which it was down, because reports are lost then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.api.training.reports import STEP
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.timeline import Now, Timeline

_MOST_SECONDS = 2**31 - 1
_MOST_JOBS = 10_000
_FIELDS = ("position", "advancedAt", "longestSeconds", "startSeconds", "furthest")


@dataclass(frozen=True, slots=True)
class JobPace:
    position: float | None = None
    """Of the current attempt; None before its first report."""
    advanced_at: str = ""
    """When the position last changed, by the server's clock."""
    longest: int = 0
    """The most seconds from one position to the next, in all attempts."""
    start: int = 0
    """The most seconds from the beginning of an attempt to its first report."""
    furthest: float | None = None
    """Of all attempts."""

    @property
    def has_steps(self) -> bool:
        """Whether the current attempt has reported how far it is."""
        return self.position is not None


class PaceMeter:
    """Measures the pace of all jobs that report to this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.boot()
        self._timeline: Timeline[str] = Timeline(clock)

    def measure(self, trainjob: Fields, report: Fields, began: str) -> Object | None:
        """`status.pace` for the patch that stores the report. `began`: when the attempt that reports began."""
        if len(self._timeline) > _MOST_JOBS:
            # Measured from the wall clock for once.
            self._timeline = Timeline(self._clock)
        uid = trainjob["metadata"]["uid"]
        now = self._timeline.begin_pass(uid)
        pace = follow(trainjob, report, now, began, self._clock.boot() - self._since)
        self._timeline.end_pass(uid, now)
        return to_wire(pace)


def read_pace(trainjob: Fields) -> JobPace:
    found = read_fields(trainjob, "status", "pace")
    return JobPace(
        read_position(found.get("position")),
        read_text(found, "advancedAt"),
        int(found.get("longestSeconds") or 0),
        int(found.get("startSeconds") or 0),
        read_position(found.get("furthest")),
    )


def find_position(report: Fields) -> float | None:
    """None if the report does not say how far the program is, or says no finite number."""
    for metric in list_items(report, "metrics"):
        if metric.get("name") == STEP:
            return read_position(metric.get("value"))
    return read_position(report.get("progressPercentage"))


def follow(trainjob: Fields, report: Fields, now: Now, began: str, up_seconds: float) -> JobPace:
    """The pace after that report. `began`: when its attempt began, "" if unknown; `up_seconds`: how long this server
    has been taking reports."""
    before, position = read_pace(trainjob), find_position(report)
    if position is None or position == before.position:
        return _remember(trainjob, before, now)
    furthest = position if before.furthest is None else max(position, before.furthest)
    longest, start = before.longest, before.start
    if before.position is not None:
        longest = max(longest, _measure(now, trainjob, "advanced", before.advanced_at, up_seconds))
    elif began:
        start = max(start, _measure(now, trainjob, "began", began, up_seconds))
    return _remember(trainjob, JobPace(position, format_time(now.wall), longest, start, furthest), now)


def _measure(now: Now, trainjob: Fields, what: str, stored: str, up_seconds: float) -> int:
    since = now.since(trainjob["metadata"]["uid"], what, stored) if stored else 0.0
    return min(math.ceil(min(since, up_seconds)), _MOST_SECONDS)


def _remember(trainjob: Fields, pace: JobPace, now: Now) -> JobPace:
    """Anchors the time now, so that a later change of the wall clock does not make the next step longer or shorter."""
    if pace.advanced_at:
        now.since(trainjob["metadata"]["uid"], "advanced", pace.advanced_at)
    return pace


def to_wire(pace: JobPace) -> Object | None:
    """For a merge patch: all fields, null for those that it does not have; None if it has none."""
    if pace == JobPace():
        return None
    values = (
        format_position(pace.position),
        pace.advanced_at or None,
        pace.longest or None,
        pace.start or None,
        format_position(pace.furthest),
    )
    return dict(zip(_FIELDS, values, strict=True))


def leave_attempt(status: Mapping[str, Any]) -> Object:
    """`status.pace` when an attempt has ended: what is true of the job, without the position."""
    kept = read_fields(status, "pace")
    return {name: kept[name] for name in ("longestSeconds", "startSeconds", "furthest") if name in kept}


def read_position(value: Any) -> float | None:
    """None for what is no finite number."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def format_position(number: float | None) -> str | None:
    """As text, because Kubernetes objects have no fractions: 1200, 0.25."""
    if number is None:
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
