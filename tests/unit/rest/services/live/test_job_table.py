"""The table of jobs: each change once, as it is now; deletions are told as long as they are remembered."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.rest.callers import SeenClient
from trainmaster.rest.services.live import job_table
from trainmaster.rest.services.live.job_rows import COLUMNS, build_row
from trainmaster.rest.services.live.job_table import Gone, JobTable, Row
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit


def build_job(name: str, uid: str = "", **status: Any) -> TrainJob:
    meta = {"name": name, "namespace": "ann", "uid": uid or f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    head = {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainJob"}
    return TrainJob({**head, "metadata": meta, "spec": {}, "status": status})


def build_table() -> JobTable:
    client: SeenClient = None  # type: ignore[assignment]  # nothing is read
    return JobTable(client, VirtualClock(), "t1", ("",))


def list_names(table: JobTable, number: int) -> list[str]:
    found = []
    for change in table.list_since(number):
        data = orjson.loads(change.data)
        found.append(data["name"] + " gone" if isinstance(change, Gone) else data[COLUMNS.index("name")])
    return found


def test_a_job_that_changes_often_is_told_once_and_in_the_order_of_the_last_changes() -> None:
    table = build_table()
    for name in ("a", "b", "c"):
        table.put(build_job(name))
    number = table.number
    for percent in range(5):
        table.put(build_job("b", trainerStatus={"progressPercentage": percent}))
    table.put(build_job("a"))
    assert list_names(table, number) == ["b"]
    assert list_names(table, 0) == ["a", "c", "b"]
    assert list_names(table, table.number) == []


def test_a_job_made_anew_under_its_name_ends_the_earlier_one() -> None:
    table = build_table()
    table.put(build_job("a", "one"))
    table.put(build_job("a", "two"))
    gone, row = table.list_since(1)
    assert isinstance(gone, Gone) and orjson.loads(gone.data)["uid"] == "one"
    assert isinstance(row, Row) and row.uid == "two"


def test_after_too_many_deletions_a_follower_has_to_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_table, "_KEPT_NOTES", 3)
    table = build_table()
    for name in "abcde":
        table.put(build_job(name))
    number = table.number
    for name in "abc":
        table.remove(("TrainJob", "ann", name))
    assert table.notes_since <= number and list_names(table, number) == ["a gone", "b gone", "c gone"]
    table.remove(("TrainJob", "ann", "d"))
    assert table.notes_since > number


def test_what_a_complete_list_does_not_have_is_gone() -> None:
    table = build_table()
    table.put(build_job("a"))
    kept = table.put(build_job("b"))
    table.complete("TrainJob", "", {kept})
    assert list_names(table, 0) == ["b", "a gone"]
    assert not table.is_complete, "the other kinds are not listed yet"


@pytest.mark.parametrize(
    ("status", "restarts"),
    [
        ({}, 0),
        ({"failure": {"attempt": 0}}, 1),
        ({"failure": {"attempt": 2}, "conditions": [{"type": "Failed", "status": "True"}]}, 2),
    ],
)
def test_restarts_are_those_that_the_job_itself_tells(status: dict[str, Any], restarts: int) -> None:
    assert build_row(build_job("a", **status))[COLUMNS.index("restarts")] == restarts


def test_a_long_message_is_cut() -> None:
    job = build_job("a", waiting={"reason": "WaitingForResources", "message": "x" * 10_000})
    assert len(str(build_row(job)[COLUMNS.index("message")])) == 500
