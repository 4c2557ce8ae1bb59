"""What REST reads from history: the younger of two jobs of one name, the last attempt of a worker, the end of a log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.history.archive import Archive
from trainmaster.history.record import JobRecord, RecordedDeletion
from trainmaster.rest.services.job_reader import describe_outcome, describe_record
from trainmaster.rest.services.records import ArchivedRecords, LogEnd, NoRecords

pytestmark = pytest.mark.unit


def make_record(uid: str, created: str, state: str = "Complete") -> JobRecord:
    condition = {
        "type": state,
        "status": "True",
        "message": f"end of {uid}",
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    }
    conditions = [] if state == "Deleted" else [condition]
    meta = {"name": "a-job-1", "namespace": "n", "uid": uid, "creationTimestamp": created}
    document = {"trainjob": {"metadata": meta, "status": {"conditions": conditions}}, "jobsets": [{"uid": f"js-{uid}"}]}
    deletion = RecordedDeletion("2026-01-03T00:00:00Z", "ann")
    return JobRecord(uid, "n", "a-job-1", "pytorch-simple", state, created, "2026-01-02T00:00:00Z", deletion, document)


def write(directory: Path, *records: JobRecord) -> ArchivedRecords:
    archive = Archive.open(directory)
    archive.put(records)
    archive.close()
    return ArchivedRecords(directory)


def test_of_two_jobs_of_one_name_the_younger_is_meant(tmp_path: Path) -> None:
    old, young = make_record("old", "2026-01-01T00:00:00Z"), make_record("young", "2026-01-01T00:00:01Z")
    records = write(tmp_path, young, old)
    found = asyncio.run(records.find("n", "a-job-1"))
    assert found is not None and found.uid == "young"
    assert asyncio.run(records.find("other", "a-job-1")) is None


def test_a_record_tells_the_end_and_who_deleted_it() -> None:
    state = describe_record(make_record("x", "2026-01-01T00:00:00Z", "Failed"))
    assert (state.state, state.completed_at) == ("Failed", "2026-01-02T00:00:00Z")
    assert state.message == "end of x (deleted 2026-01-03T00:00:00Z by ann)"
    assert describe_outcome(make_record("x", "2026-01-01T00:00:00Z", "Failed")).message == "end of x"
    state = describe_record(make_record("x", "2026-01-01T00:00:00Z", "Deleted"))
    assert (state.state, state.message.startswith("deleted before its end")) == ("Failed", True)


def test_the_log_of_the_last_attempt_is_read(tmp_path: Path) -> None:
    record = make_record("x", "2026-01-01T00:00:00Z")
    records = write(tmp_path, record)
    for attempt, text in ((0, "first"), (10, "third"), (2, "second")):
        folder = tmp_path / "logs" / "js-x" / str(attempt) / "node-0-1" / f"pod-{attempt}"
        folder.mkdir(parents=True)
        (folder / "node.0.log").write_text(f"2026-01-01T00:00:00Z stdout F {text}\n")
    assert asyncio.run(records.find_log(record, "node", 1)) == (b"third\n", False)
    assert asyncio.run(records.find_log(record, "node", 0)) is None


def test_no_archive_has_no_records(tmp_path: Path) -> None:
    record = make_record("x", "2026-01-01T00:00:00Z")
    for records in (ArchivedRecords(tmp_path / "none"), NoRecords()):
        assert asyncio.run(records.find("n", "a-job-1")) is None
        assert asyncio.run(records.find_log(record, "node", 0)) is None
    assert not (tmp_path / "none").exists()


def read_end(pieces: list[bytes], limit: int) -> tuple[bytes, bool]:
    end = LogEnd(limit)
    for piece in pieces:
        end.add(piece)
    return end.read()


def test_the_end_of_a_long_log_begins_with_a_whole_line() -> None:
    assert read_end([b"one\n", b"two\n"], 100) == (b"one\ntwo\n", False)
    assert read_end([b"one\n", b"two\n", b"three\n"], 8) == (b"three\n", True)
    assert read_end([b"%d\n" % number for number in range(1000)], 8) == (b"999\n", True)
    assert read_end([b"x" * 7] * 9 + [b"y"], 8) == (b"x" * 7 + b"y", True)
    assert read_end([], 8) == (b"", False)
