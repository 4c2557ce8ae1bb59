"""Records for /api/v1/history: pages without repeats, other namespaces, and keys of jobs that were deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api.status import NotFound
from trainmaster.history.archive import Archive
from trainmaster.history.record import JobRecord, RecordedDeletion
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation.guide_request import GuideRequest
from trainmaster.rest.services.creation.new_job_request import NewJobRequest
from trainmaster.rest.services.creation.new_jobs import BODY_HASH, NewJobs, Ticket
from trainmaster.rest.services.creation.rerunning import KEY_LABEL
from trainmaster.rest.services.history import HistoryService, RecordsWanted

pytestmark = pytest.mark.unit


def make_record(number: int, namespace: str = "ann", name: str = "", key: str = "") -> JobRecord:
    meta: dict[str, Any] = {"name": name or f"job-{number}", "namespace": namespace, "uid": f"uid-{number}"}
    meta |= {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {KEY_LABEL: key}, "annotations": {BODY_HASH: "b"}}
    job = {"metadata": meta, "spec": {"runtimeRef": {"name": "x"}}}
    document = {"trainjob": job, "jobsets": [], "jobs": [], "pods": [], "events": [], "gaps": []}
    # Several end at the same time.
    ended = f"2026-01-01T00:00:{number // 3:02d}Z"
    deletion = RecordedDeletion(ended, "ann")
    return JobRecord(
        meta["uid"], namespace, meta["name"], "x", "Complete", meta["creationTimestamp"], ended, deletion, document
    )


@pytest.fixture
def desk(tmp_path: Path) -> HistoryService:
    archive = Archive.open(tmp_path)
    archive.put([make_record(number) for number in range(10)])
    archive.put([make_record(20, "bob"), make_record(21, name="ann-kkkkkkkkkk", key="k" * 40)])
    archive.close()
    return HistoryService(tmp_path)


def test_pages_have_every_record_once_the_newest_first(desk: HistoryService) -> None:
    async def collect() -> list[str]:
        seen, token = list[str](), ""
        while True:
            items, token = await desk.select(RecordsWanted(("ann",), limit=4, token=token))
            seen += [item["uid"] for item in items]
            if not token:
                return seen

    seen = asyncio.run(collect())
    assert sorted(seen) == sorted([*(f"uid-{number}" for number in range(10)), "uid-21"])
    assert seen[0] == "uid-21"


def test_a_record_of_another_namespace_is_not_there(desk: HistoryService) -> None:
    assert asyncio.run(desk.get("bob", "uid-20")).name == "job-20"
    with pytest.raises(Problem) as error:
        asyncio.run(desk.get("ann", "uid-20"))
    assert error.value.status == 404


@pytest.mark.parametrize("token", ["x", "W10", "eyJhIjoxfQ", "WzEsMiwzXQ", "é"])
def test_a_token_that_is_none_of_ours_is_refused(desk: HistoryService, token: str) -> None:
    with pytest.raises(Problem) as error:
        asyncio.run(desk.select(RecordsWanted(("ann",), token=token)))
    assert error.value.status == 422


class _Empty:
    async def get(self, *asked: Any) -> Any:
        raise NotFound(404, "NotFound", "gone")


def test_a_key_is_known_after_its_job_was_deleted(desk: HistoryService) -> None:
    jobs = NewJobs(None, desk, None)  # type: ignore[arg-type]  # makes nothing
    wish = NewJobRequest(GuideRequest("ann", "ann", "pytorch", ""))
    made = asyncio.run(jobs.find_made(_Empty(), wish, Ticket("k" * 40, "b")))  # type: ignore[arg-type]
    assert made is not None
    assert (made.uid, made.replayed) == ("uid-21", True)
    with pytest.raises(Problem) as error:
        asyncio.run(jobs.find_made(_Empty(), wish, Ticket("k" * 40, "another")))  # type: ignore[arg-type]
    assert error.value.kind == "key-reused"
    assert asyncio.run(jobs.find_made(_Empty(), wish, Ticket("n" * 40, "b"))) is None  # type: ignore[arg-type]
