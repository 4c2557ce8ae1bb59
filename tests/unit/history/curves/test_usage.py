"""What ranks used: points are merged by their age, bounded, and come back from the archive's file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.unit.history.test_archive import GONE, make_record
from trainmaster.history.archive import Archive
from trainmaster.history.curves import usage
from trainmaster.history.curves.usage import (
    DAY,
    HOUR,
    LIMIT,
    RankUsage,
    UsagePoint,
    choose_by_age,
    choose_evenly,
    condense,
    list_rows,
    merge,
)

pytestmark = pytest.mark.unit

NODE = ("node", 0)


def make_point(at: int, cpu: int = 500, memory: int = 100, attempt: int = 0) -> UsagePoint:
    return UsagePoint(at, attempt, {NODE: RankUsage(cpu, memory)})


def test_a_point_comes_back_as_it_was() -> None:
    point = UsagePoint(7, 2, {NODE: RankUsage(1, 2, 3, 4), ("launcher", 0): RankUsage(None, 5)})
    assert usage.load(7, 2, point.dump()) == point


def test_a_merged_point_has_the_mean_of_rates_and_the_most_memory() -> None:
    points = [
        UsagePoint(10, 0, {NODE: RankUsage(100, 5, 20, 7)}),
        UsagePoint(20, 0, {NODE: RankUsage(300, 9, None, None), ("node", 1): RankUsage(50, 1)}),
    ]
    assert merge(points) == UsagePoint(10, 0, {NODE: RankUsage(200, 9, 20, 7), ("node", 1): RankUsage(50, 1)})


def test_a_running_job_has_an_hour_as_measured_and_a_day_by_minute() -> None:
    now = 100 * DAY
    points = [make_point(at) for at in range(now - 5 * HOUR, now + 1, 10)]
    left = condense(points, choose_by_age(list_rows(points), now))
    young = [point.at for point in left if point.at > now - HOUR]
    assert len(young) == 360
    old = [point.at for point in left if point.at <= now - HOUR - 60]
    assert {later - earlier for earlier, later in itertools.pairwise(old)} == {60}
    again = condense(left, choose_by_age(list_rows(left), now))
    assert again == left


def test_a_job_of_months_stays_bounded() -> None:
    points: list[UsagePoint] = []
    for minute in range(0, 60 * 24 * 20, 10):
        points += [make_point(60 * (minute + more)) for more in range(10)]
        points = condense(points, choose_by_age(list_rows(points), 60 * (minute + 10)))
    assert len(points) <= LIMIT + DAY // 60 + 20
    assert points[0].at == 0


@pytest.mark.parametrize("attempts", [1, 3, 700])
def test_what_has_ended_has_as_many_points_as_a_record(attempts: int) -> None:
    points = [make_point(10 * number, memory=number, attempt=number * attempts // 5000) for number in range(5000)]
    left = condense(points, choose_evenly(list_rows(points)))
    assert LIMIT // 4 <= len(left) <= LIMIT
    assert left[0].at == 0 and max(point.ranks[NODE].memory or 0 for point in left) == 4999
    assert [point.at for point in left] == sorted(point.at for point in left)
    few = points[:LIMIT]
    assert condense(few, choose_evenly(list_rows(few))) == few


def test_usage_is_stored_thinned_and_removed_with_its_record(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.put([make_record("u1", deletion=GONE)])
    now = 100 * DAY
    points = [make_point(at) for at in range(now - 3 * HOUR, now + 1, 10)]
    archive.add_usage([("u1", point) for point in points])
    assert archive.list_usage("u1") == points
    assert len(archive.list_usage("u1", now - 60)) == 7
    assert archive.measure_points("u1") > 0
    assert archive.list_long_usage("2026-01-01T00:00:00Z") == ["u1"]
    assert archive.list_long_usage("2027-01-01T00:00:00Z") == []
    archive.add_usage([], thin=["u1"], now=now)
    assert 360 + 110 < len(archive.list_usage("u1")) < 360 + 130
    archive.condense_usage(["u1", "unknown"])
    assert len(archive.list_usage("u1")) <= LIMIT
    archive.remove(["u1"])
    assert archive.list_usage("u1") == []
    archive.close()


def test_what_is_measured_after_its_record_was_removed_is_not_kept(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.add_usage([("u1", make_point(10))])
    assert archive.list_usage("u1") == []
    archive.note({"u2": b"{}"}, {})
    archive.add_usage([("u2", make_point(10))])
    archive.close()
    archive = Archive.open(tmp_path, read_only=True)
    assert archive.list_usage("u2") == [make_point(10)]
    archive.close()
