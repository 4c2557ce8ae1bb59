"""A job's progress reports as a series. Pure: converts reports to points, and chooses which points to keep.

A point is a report with its metrics as numbers. The length of a series is limited: a full series is thinned to less
than half, evenly over the lifetime of the job, and the first and last points are always kept. So a job of a minute
keeps every report, and a job of a month keeps one every few hours, slightly more for the most recent part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.kit.clock import format_time, parse_time

LIMIT = 512
"""Points per job, about 50 to 500 bytes each."""
_MOST_METRICS = 32
"""The maximum number of metrics of a point."""


@dataclass(frozen=True, slots=True)
class Point:
    at: int
    """Seconds since the epoch."""
    progress: int | None = None
    left: int | None = None
    """Remaining seconds as estimated by the program."""
    metrics: dict[str, float] = field(default_factory=dict)

    def dump(self) -> bytes:
        return orjson.dumps([self.progress, self.left, self.metrics])


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """The values of one metric over the lifetime of a job."""

    name: str
    first: float
    last: float
    least: float
    most: float
    count: int


def load(at: int, raw: bytes) -> Point:
    progress, left, metrics = orjson.loads(raw)
    return Point(at, progress, left, metrics)


def read_point(job: Fields) -> Point | None:
    """The report in the job's current status; None if there is none."""
    report = read_fields(job, "status", "trainerStatus")
    try:
        at = int(parse_time(report["lastUpdatedTime"]).timestamp())
    except (KeyError, TypeError, ValueError):
        return None
    metrics: dict[str, float] = {}
    for entry in list_items(report, "metrics"):
        number = _read_number(entry.get("value"))
        if number is not None and len(metrics) < _MOST_METRICS:
            metrics[entry["name"]] = number
    return Point(at, report.get("progressPercentage"), report.get("estimatedRemainingSeconds"), metrics)


def _read_number(text: str | float) -> float | None:
    """None for text that is not a number, and for NaN and infinities, which JSON does not have."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def choose_dropped(moments: Sequence[int], limit: int = LIMIT) -> list[int]:
    """Which of these times (in order) to drop; empty while there is room."""
    if len(moments) <= limit:
        return []
    step = (moments[-1] - moments[0]) / (limit // 2)
    due, dropped = moments[0] + step, []
    for moment in moments[1:-1]:
        if moment < due:
            dropped.append(moment)
        else:
            due = moments[0] + step * (math.floor((moment - moments[0]) / step) + 1)
    return dropped


def to_data(points: Sequence[Point]) -> list[Object]:
    return [
        {
            "at": format_time(datetime.fromtimestamp(point.at, UTC)),
            "progressPercentage": point.progress,
            "estimatedRemainingSeconds": point.left,
            "metrics": point.metrics,
        }
        for point in points
    ]


def read_data(data: Sequence[Fields]) -> list[Point]:
    """The inverse of `to_data`."""
    return [
        Point(
            int(parse_time(one["at"]).timestamp()),
            one["progressPercentage"],
            one["estimatedRemainingSeconds"],
            dict(one["metrics"]),
        )
        for one in data
    ]


def list_courses(points: Sequence[Point]) -> list[MetricSeries]:
    """Every metric, in the order of its first report."""
    values: dict[str, list[float]] = {}
    for point in points:
        for name, value in point.metrics.items():
            values.setdefault(name, []).append(value)
    return [
        MetricSeries(name, found[0], found[-1], min(found), max(found), len(found)) for name, found in values.items()
    ]
