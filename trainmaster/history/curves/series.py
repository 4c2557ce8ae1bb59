"""A job's progress reports as a series. Pure: converts reports to points, and thins a series that has become too long.

A point is a report with its metrics as numbers. The length of a series is limited: a full series is thinned to less
than half, evenly over the lifetime of the job. Of the points that fall together two are left, which have the least and
the greatest value of every metric, so that no peak is lost. The first and last points are always kept. So a job of a
minute keeps every report, and a job of a month keeps two every few hours, slightly more for the most recent part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import orjson

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.training.reports import STEP, TOTAL
from trainmaster.kit.clock import format_time, parse_time

LIMIT = 512
"""Points per job, about 50 to 500 bytes each."""
_MOST_METRICS = 32
"""The maximum number of metrics of a point, besides its step."""


@dataclass(frozen=True, slots=True)
class Point:
    at: int
    """Seconds since the epoch."""
    progress: int | None = None
    left: int | None = None
    """Remaining seconds as estimated by the program."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """None where the program reported no finite number: NaN, an infinity."""
    attempt: int = 0

    def dump(self) -> bytes:
        return orjson.dumps([self.progress, self.left, self.metrics, self.attempt])


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
    """Points of earlier versions have no attempt."""
    progress, left, metrics, *attempt = orjson.loads(raw)
    return Point(at, progress, left, metrics, *attempt)


def read_point(job: Fields, attempt: int = 0) -> Point | None:
    """The report in the job's current status; None if there is none. `attempt`: who reported it."""
    report = read_fields(job, "status", "trainerStatus")
    try:
        at = int(parse_time(report["lastUpdatedTime"]).timestamp())
    except (KeyError, TypeError, ValueError):
        return None
    metrics: dict[str, float | None] = {}
    for entry in list_items(report, "metrics"):
        name, value = entry["name"], _read_number(entry.get("value"))
        if value is not None and (name in (STEP, TOTAL) or len(metrics.keys() - {STEP, TOTAL}) < _MOST_METRICS):
            metrics[name] = value if math.isfinite(value) else None
    return Point(at, report.get("progressPercentage"), report.get("estimatedRemainingSeconds"), metrics, attempt)


def _read_number(text: str | float) -> float | None:
    """None for text that is not a number. NaN is one."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def thin(points: Sequence[Point], limit: int = LIMIT) -> list[Point]:
    """At most about half of the limit; the same points while there is room. The points are in order."""
    if len(points) <= limit:
        return list(points)
    first, *middle, last = points
    step = (last.at - first.at) / (limit // 4) or 1
    groups: dict[tuple[int, int], list[Point]] = {}
    for point in middle:
        groups.setdefault((int((point.at - first.at) / step), point.attempt), []).append(point)
    if len(groups) > limit // 2:
        # So many attempts that they cannot be told apart any more.
        merged: dict[tuple[int, int], list[Point]] = {}
        for (number, _), group in groups.items():
            merged.setdefault((number, 0), []).extend(group)
        groups = merged
    return [first, *(left for group in groups.values() for left in _merge(group)), last]


def _merge(group: Sequence[Point]) -> Sequence[Point]:
    """Two points with the extremes of all metrics in the order in which they came, at the ends of the group."""
    if len(group) <= 2:
        return group
    early, late = dict[str, float | None](), dict[str, float | None]()
    for name in dict.fromkeys(name for point in group for name in point.metrics):
        values = [value for point in group if (value := point.metrics.get(name)) is not None]
        ends: tuple[float | None, float | None] = (None, None)
        if values:
            least, most = min(values), max(values)
            ends = (least, most) if values.index(least) <= values.index(most) else (most, least)
        early[name], late[name] = ends
    return replace(group[0], metrics=early), replace(group[-1], metrics=late)


def to_data(points: Sequence[Point]) -> list[Object]:
    return [
        {
            "at": format_time(datetime.fromtimestamp(point.at, UTC)),
            "progressPercentage": point.progress,
            "estimatedRemainingSeconds": point.left,
            "metrics": point.metrics,
            "attempt": point.attempt,
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
            one.get("attempt", 0),
        )
        for one in data
    ]


def list_courses(points: Sequence[Point]) -> list[MetricSeries]:
    """Every metric, in the order of its first report."""
    values: dict[str, list[float]] = {}
    for point in points:
        for name, value in point.metrics.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return [
        MetricSeries(name, found[0], found[-1], min(found), max(found), len(found)) for name, found in values.items()
    ]
