"""What the ranks of a job have used, as points in time. Pure: what a point is, and which points are merged into one.

    the last hour      every 10 seconds, as measured
    the last day       one a minute
    before             evenly, 512 at most
    when it has ended  evenly over its whole life, 512 at most

A merged point has the mean of CPU and GPU use, which are rates, and the most memory, because the peak is what a limit
has to allow.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

LIMIT = 512
"""Points in a record, and before the last day."""
HOUR, DAY = 3600, 86_400
_MINUTE = 60

Seat = tuple[str, int]
"""(job, worker), as in the REST API: ("node", 0)."""
Row = tuple[int, int]
"""(time, attempt) of a point."""


@dataclass(frozen=True, slots=True)
class RankUsage:
    """None: not measured."""

    cpu: int | None = None
    """In thousandths of a core."""
    memory: int | None = None
    """In MiB."""
    gpu: int | None = None
    """In percent, the mean of the rank's GPUs."""
    gpu_memory: int | None = None
    """In MiB, of all its GPUs together."""


@dataclass(frozen=True, slots=True)
class UsagePoint:
    at: int
    """Seconds since the epoch."""
    attempt: int = 0
    ranks: Mapping[Seat, RankUsage] = field(default_factory=dict)

    def dump(self) -> bytes:
        """The ranks."""
        rows = [(*seat, one.cpu, one.memory, one.gpu, one.gpu_memory) for seat, one in self.ranks.items()]
        return zlib.compress(orjson.dumps(rows), 1)


def load(at: int, attempt: int, raw: bytes) -> UsagePoint:
    rows = orjson.loads(zlib.decompress(raw))
    return UsagePoint(at, attempt, {(job, worker): RankUsage(*values) for job, worker, *values in rows})


def merge(points: Sequence[UsagePoint]) -> UsagePoint:
    """In the place of the first one."""
    first = points[0]
    if len(points) == 1:
        return first
    seats = dict.fromkeys(seat for point in points for seat in point.ranks)
    return UsagePoint(
        first.at,
        first.attempt,
        {seat: _merge_rank([point.ranks[seat] for point in points if seat in point.ranks]) for seat in seats},
    )


def _merge_rank(usages: Sequence[RankUsage]) -> RankUsage:
    return RankUsage(
        _find_mean(one.cpu for one in usages),
        max((one.memory for one in usages if one.memory is not None), default=None),
        _find_mean(one.gpu for one in usages),
        max((one.gpu_memory for one in usages if one.gpu_memory is not None), default=None),
    )


def _find_mean(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known)) if known else None


def choose_by_age(rows: Sequence[Row], now: int) -> list[list[Row]]:
    """Which points of a job that goes on are to become one, in order; each group has several."""
    old = [row for row in rows if row[0] < now - DAY]
    found = choose_evenly(old, LIMIT // 2) if len(old) > LIMIT else []
    over = [row for row in rows[len(old) :] if (row[0] // _MINUTE + 1) * _MINUTE <= now - HOUR]
    return [*found, *choose_by_minute(over)]


def choose_by_minute(rows: Sequence[Row]) -> list[list[Row]]:
    return [group for group in _group(rows, 0, _MINUTE) if len(group) > 1]


def choose_evenly(rows: Sequence[Row], limit: int = LIMIT) -> list[list[Row]]:
    """Which points are to become one so that at most so many are left; each group has several."""
    if len(rows) <= limit:
        return []
    begin, end = rows[0][0], rows[-1][0]
    width = (end - begin + 1) / limit
    groups = _group(rows, begin, width)
    if len(groups) > limit:
        # Several attempts within one part of the time. They come one after another, so each adds one group at most.
        extra = len(groups) - limit
        groups = _group(rows, begin, width * limit / max(1, limit - extra))
    if len(groups) > limit:
        groups = _group([(at, 0) for at, _ in rows], begin, width)
        attempts = dict(rows)
        groups = [[(at, attempts[at]) for at, _ in group] for group in groups]
    return [group for group in groups if len(group) > 1]


def _group(rows: Sequence[Row], begin: int, width: float) -> list[list[Row]]:
    groups: dict[Row, list[Row]] = {}
    for at, attempt in rows:
        groups.setdefault((int((at - begin) / width), attempt), []).append((at, attempt))
    return list(groups.values())


def condense(points: Sequence[UsagePoint], groups: Sequence[Sequence[Row]]) -> list[UsagePoint]:
    """The points with each of these groups merged, in order."""
    by_time = {point.at: point for point in points}
    for group in groups:
        members = [by_time.pop(at) for at, _ in group]
        by_time[members[0].at] = merge(members)
    return [by_time[at] for at in sorted(by_time)]


def list_rows(points: Sequence[UsagePoint]) -> list[Row]:
    return [(point.at, point.attempt) for point in points]
