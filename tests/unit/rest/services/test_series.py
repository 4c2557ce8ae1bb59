"""Series and usage as columns: gaps, names of any kind, and answers of a bounded size."""

from __future__ import annotations

import pytest

from trainmaster.history.curves.series import Point
from trainmaster.history.curves.usage import DAY, HOUR, RankUsage, UsagePoint
from trainmaster.rest.models.series import Series, Usage
from trainmaster.rest.services.series import build_series, build_usage, join, shorten

pytestmark = pytest.mark.unit

HEAD = {"name": "a", "namespace": "ann", "uid": "u1"}


def test_reports_become_columns_with_gaps() -> None:
    points = [
        Point(10, 1, None, {"loss": 2.0, "current_step": 1.0, "total_steps": 9.0}),
        Point(20, 2, None, {"loss": None, "__proto__": 1e308, "current_step": 2.0}, attempt=1),
        Point(30, None, None, {"loss": 0.5}, attempt=1),
    ]
    found = Series(**HEAD, **build_series(points)).model_dump()  # type: ignore[arg-type]
    assert found["times"] == [10, 20, 30]
    assert found["attempts"] == [0, 1, 1]
    assert found["steps"] == [1.0, 2.0, None]
    assert found["percents"] == [1, 2, None]
    assert found["metrics"] == [
        {"name": "loss", "values": [2.0, None, 0.5]},
        {"name": "__proto__", "values": [None, 1e308, None]},
    ]
    assert build_series([])["metrics"] == []


def test_ranks_that_come_and_go_have_gaps_and_those_without_gpus_no_curve_of_them() -> None:
    points = [
        UsagePoint(10, 0, {("node", 0): RankUsage(500, 1)}),
        UsagePoint(20, 1, {("node", 0): RankUsage(None, None), ("node", 1): RankUsage(1000, 2, 90, 3)}),
    ]
    found = Usage(**HEAD, now=[], **build_usage(points)).model_dump()  # type: ignore[arg-type]
    first, second = found["ranks"]
    assert (first["cpu"], first["memory"], first["gpu"]) == ([0.5, None], [1 << 20, None], [])
    assert (second["worker"], second["cpu"], second["gpu"]) == (1, [None, 1.0], [None, 90])
    assert second["gpu_memory"] == [None, 3 << 20]


def make_points(ranks: int, seconds: int, step: int) -> list[UsagePoint]:
    use = {("node", number): RankUsage(1, 1) for number in range(ranks)}
    return [UsagePoint(at, 0, use) for at in range(0, seconds, step)]


def test_an_hour_is_as_measured_a_day_by_minute_and_everything_in_512() -> None:
    points = make_points(1, DAY, 10)
    assert len(shorten(points[-360:], "hour")) == 360
    day = shorten(points, "day")
    assert 1435 <= len(day) <= 1445
    assert len(shorten(points, "all")) <= 512


def test_the_answer_about_many_ranks_has_fewer_points() -> None:
    found = shorten(make_points(1000, HOUR, 10), "hour")
    assert 10 <= len(found) <= 60


def test_what_was_just_stored_counts_once() -> None:
    points = make_points(1, 60, 10)
    assert join(points[:4], points[2:]) == points
