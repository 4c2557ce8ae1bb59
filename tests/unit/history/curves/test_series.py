"""What jobs report is kept as a series: bounded, even over the whole life, and there after a crash."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.flow.plant import Plant
from tests.flow.stage import make_trainjob
from tests.unit.history.test_archive import make_record
from tests.unit.history.test_keeper import run, wait_for_record
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.history import rendering
from trainmaster.history.archive import FILE, Archive
from trainmaster.history.curves import series
from trainmaster.history.curves.series import LIMIT, Point, list_courses, read_point, thin

pytestmark = pytest.mark.unit


def make_status(at: str = "2026-01-31T12:00:00Z", progress: int = 10, **metrics: Any) -> dict[str, Any]:
    shown = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    report = {"progressPercentage": progress, "lastUpdatedTime": at, "metrics": shown}
    return {"status": {"trainerStatus": report}}


def test_a_point_is_a_report_with_its_numbers() -> None:
    point = read_point(make_status(loss="0.5", phase="warm-up", lr="nan", steps=7), 3)
    assert point == Point(1769860800, 10, None, {"loss": 0.5, "lr": None, "steps": 7.0}, 3)
    assert read_point({"status": {}}) is None
    assert read_point({"status": {"trainerStatus": {"lastUpdatedTime": "never"}}}) is None
    crowd: dict[str, Any] = {f"m{number}": number for number in range(200)}
    many = read_point(make_status(**crowd, current_step=5))
    assert many is not None and len(many.metrics) == 33 and many.metrics["current_step"] == 5.0


def test_values_of_any_size_and_name_come_back_as_they_were() -> None:
    values: dict[str, Any] = {"__proto__": "1e308", "huge": "-1e308", "inf": "inf", "<b>": "5e-324"}
    status = make_status(**values)
    point = read_point(status)
    assert point is not None
    assert point.metrics == {"__proto__": 1e308, "huge": -1e308, "inf": None, "<b>": 5e-324}
    assert series.load(point.at, point.dump()) == point


def test_points_of_earlier_versions_have_no_attempt() -> None:
    assert series.load(7, b'[10,null,{"loss":0.5}]') == Point(7, 10, None, {"loss": 0.5}, 0)


def test_a_series_with_room_keeps_everything() -> None:
    points = [Point(number) for number in range(LIMIT)]
    assert thin(points) == points


@pytest.mark.parametrize(
    "moments", [list(range(0, 5 * 600, 5)), [0, *range(1_000_000, 1_000_600)]], ids=["even", "gap"]
)
def test_a_full_series_is_thinned_evenly_and_keeps_its_ends(moments: list[int]) -> None:
    kept = [point.at for point in thin([Point(moment) for moment in moments])]
    assert len(kept) <= LIMIT // 2 + 2 and kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (moments[0], moments[-1])
    widest = max(later - earlier for earlier, later in itertools.pairwise(kept))
    step = (moments[-1] - moments[0]) / (LIMIT // 4)
    assert widest <= 2 * max(step, max(b - a for a, b in itertools.pairwise(moments)))


def test_thinning_keeps_the_peaks_of_every_metric_and_the_order_of_steps() -> None:
    points = [
        Point(5 * number, metrics={"current_step": float(number), "loss": 1.0, "norm": 2.0}) for number in range(5000)
    ]
    points[1234].metrics["loss"] = 90.0
    points[1235].metrics["loss"] = -90.0
    points[3333].metrics["norm"] = 1e308
    left = points
    for count in (513, 1200, 3000, 5000):
        left = thin([*thin(points[:count])]) if count < 5000 else thin(points)
        assert len(left) <= LIMIT
    losses = [value for point in left if (value := point.metrics["loss"]) is not None]
    assert (max(losses), min(losses)) == (90.0, -90.0)
    assert losses.index(90.0) < losses.index(-90.0)
    assert max(point.metrics["norm"] or 0 for point in left) == 1e308
    steps = [point.metrics["current_step"] or 0 for point in left]
    assert steps == sorted(steps) and steps[0] == 0 and steps[-1] == 4999


def test_thinning_tells_attempts_apart_unless_there_are_too_many() -> None:
    points = [Point(number, attempt=number // 1000) for number in range(3000)]
    assert [point.attempt for point in thin(points)] == [point.at // 1000 for point in thin(points)]
    assert len(thin([Point(number, attempt=number) for number in range(3000)])) <= LIMIT


def test_a_long_life_stays_bounded_and_the_last_word_is_there(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    for begin in range(0, 20_000, 100):
        points = [("u1", Point(5 * number, number % 100, None, {"loss": 1.0})) for number in range(begin, begin + 100)]
        archive.add_points(points)
    kept = archive.list_points("u1")
    assert LIMIT // 4 <= len(kept) <= LIMIT
    assert (kept[0].at, kept[-1].at) == (0, 5 * 19_999)
    early = [point for point in kept if point.at < 50_000]
    assert len(early) > LIMIT // 10, "the beginning is not forgotten"
    archive.close()


def test_points_come_back_are_counted_and_go_with_the_record(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.put([make_record()])
    point = Point(7, 10, 20, {"loss": 0.5})
    archive.add_points([("u1", point), ("u2", point)])
    archive.add_points([("u1", point)])
    archive.close()
    archive = Archive.open(tmp_path)
    assert archive.list_points("u1") == [point]
    assert archive.measure_points("u1") > 0
    archive.remove(["u1"])
    assert (archive.list_points("u1"), archive.list_points("u2")) == ([], [point])
    archive.close()


def test_an_archive_from_before_there_were_series_can_be_read(tmp_path: Path) -> None:
    Archive.open(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / FILE))
    connection.execute("DROP TABLE series")
    connection.close()
    reader = Archive.open(tmp_path, read_only=True)
    assert reader.list_points("u1") == []
    reader.close()


def test_courses_and_words() -> None:
    points = [Point(0, 0, None, {"loss": 2.0}), Point(5, 50, 5, {"loss": 0.5, "accuracy": 0.9}), Point(9, 90)]
    courses = list_courses(points)
    assert [(one.name, one.first, one.last, one.least, one.most, one.count) for one in courses] == [
        ("loss", 2.0, 0.5, 0.5, 2.0, 2),
        ("accuracy", 0.9, 0.9, 0.9, 0.9, 1),
    ]
    lines = list(rendering.describe(make_record(), (), points))
    assert "Progress:   90 %, 3 points kept: `-o json` shows them" in lines
    assert "  loss      2 -> 0.5  (least 0.5, most 2)" in lines
    data = rendering.to_full_data(make_record(), (), points)["progress"]
    assert data == series.to_data(points)
    assert data[1] == {
        "at": "1970-01-01T00:00:05Z",
        "progressPercentage": 50,
        "estimatedRemainingSeconds": 5,
        "metrics": {"loss": 0.5, "accuracy": 0.9},
        "attempt": 0,
    }
    assert series.read_data(data) == points


def test_reports_of_a_job_become_its_series_and_are_no_news_otherwise(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        await asyncio.sleep(10)
        trainjob = await plant.client.get(TRAIN_JOBS, "first", "default")
        uid = trainjob["metadata"]["uid"]
        noted = archive.list_open()[uid]["metadata"]["resourceVersion"]
        for second in range(5):
            patch = make_status(f"2100-01-31T12:00:0{second}Z", second * 20, loss=1 / (second + 1))
            await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, patch, "default", subresource="status")
            await asyncio.sleep(3)
        assert [point.progress for point in archive.list_points(uid)] == [0, 20, 40, 60, 80]
        assert archive.list_open()[uid]["metadata"]["resourceVersion"] == noted
        last = make_status("2100-01-31T12:00:05Z", 99)
        await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, last, "default", subresource="status")
        await plant.client.delete(TRAIN_JOBS, "first", "default")
        record = await wait_for_record(archive, deleted=True)
        assert [point.progress for point in archive.list_points(record.uid)] == [0, 20, 40, 60, 80, 99]
        assert record.kept_bytes > 0

    run(tmp_path, body, seconds=500)


def test_a_failed_job_says_who_failed_and_its_last_words_once() -> None:
    failure = {"rank": 1, "replicatedJob": "node", "exitCode": 1, "message": "step\nValueError: \x1b[2Jbad"}
    message = "jobset failed; first failure: rank 1 ended with exit code 1; its last words:\nstep\nValueError: bad"
    condition = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": message}
    record = make_record()
    trainjob = {**record.document["trainjob"], "status": {"conditions": [condition], "failure": failure}}
    record = replace(record, state="Failed", document={**record.document, "trainjob": trainjob})
    lines = list(rendering.describe(record, ()))
    at = lines.index("Last words:")
    assert lines[at - 1] == "Why:        rank 1: ValueError: bad"
    assert lines[at + 1 : at + 3] == ["  step", "  ValueError:  [2Jbad"]


def test_reports_belong_to_the_attempt_in_which_they_came(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        await asyncio.sleep(10)
        uid = (await plant.client.get(TRAIN_JOBS, "first", "default"))["metadata"]["uid"]

        async def report(second: int) -> None:
            patch = make_status(f"2100-01-31T12:00:0{second}Z", second, loss=1.0)
            await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, patch, "default", subresource="status")
            await asyncio.sleep(3)

        await report(1)
        restarts = {"status": {"restarts": 1}}
        await plant.client.patch(JOB_SETS, "first", PatchType.MERGE, restarts, "default", subresource="status")
        # Nothing new is reported, although the job changes.
        labels = {"metadata": {"labels": {"a": "b"}}}
        await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, labels, "default")
        await asyncio.sleep(3)
        await report(2)
        assert [(point.progress, point.attempt) for point in archive.list_points(uid)] == [(1, 0), (2, 1)]

    run(tmp_path, body, seconds=500)
