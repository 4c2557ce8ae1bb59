"""Documents of evidence: kept by attempt, merged with what is known, and never more than a few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.history import evidence
from trainmaster.history.purging import remove_results
from trainmaster.history.results import RESULTS

pytestmark = pytest.mark.unit


def build_rank(worker: int, **more: Any) -> dict[str, Any]:
    seat = {"job": "node", "job_index": 0, "worker": worker, "container": "node"}
    return {**seat, "lines": [], "memory": {}, "end": None, "processes": [], **more}


def build(attempt: int = 0, reason: str = evidence.REQUESTED, *ranks: dict[str, Any]) -> dict[str, Any]:
    at = "2026-11-19T02:20:13Z"
    return {"version": evidence.VERSION, "attempt": attempt, "reason": reason, "at": at, "ranks": list(ranks)}


def test_the_last_attempts_are_kept_and_removed_with_the_record(tmp_path: Path) -> None:
    results = tmp_path / RESULTS
    assert evidence.find(results, "u") is None
    for attempt in range(evidence.MOST_ATTEMPTS + 2):
        evidence.keep(results, "u", build(attempt))
    assert evidence.list_kept(results, "u") == list(range(2, evidence.MOST_ATTEMPTS + 2))
    found = evidence.find(results, "u")
    assert found is not None and found["attempt"] == evidence.MOST_ATTEMPTS + 1
    assert evidence.find(results, "u", 2) is not None and evidence.find(results, "u", 1) is None
    assert (results / "u" / evidence.FOLDER).stat().st_mode & 0o777 == 0o700
    remove_results(tmp_path, "u")
    assert evidence.list_kept(results, "u") == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 99, "ranks": []}', b'{"version": 1}'])
def test_a_damaged_document_is_none(tmp_path: Path, content: bytes) -> None:
    evidence.keep(tmp_path, "u", build(3))
    (tmp_path / "u" / evidence.FOLDER / "3.json").write_bytes(content)
    assert evidence.find(tmp_path, "u", 3) is None


def test_how_ranks_ended_stays_when_others_are_looked_at() -> None:
    failed = build(0, evidence.FAILED, build_rank(1, end={"code": 7}))
    looked = build(0, evidence.DEADLINE, build_rank(0, processes=[1]), build_rank(1, processes=[2]))
    merged = evidence.merge(failed, looked)
    assert merged["reason"] == evidence.DEADLINE
    assert [(rank["worker"], rank["processes"], rank["end"]) for rank in merged["ranks"]] == [
        (0, [1], None),
        (1, [2], {"code": 7}),
    ]


def test_what_ranks_did_stays_when_they_end() -> None:
    looked = build(0, evidence.STALLED, build_rank(0, processes=[1], lines=["a"]))
    failed = build(0, evidence.FAILED, build_rank(0, end={"code": 7}, lines=["b"]))
    merged = evidence.merge(looked, failed)
    (rank,) = merged["ranks"]
    assert merged["reason"] == evidence.STALLED
    assert (rank["processes"], rank["lines"], rank["end"]) == ([1], ["b"], {"code": 7})
    again = build(0, evidence.FAILED, build_rank(0, end={"code": 7}, lines=[]))
    assert evidence.merge(merged, again) == merged, "the same end, reported twice"


def test_another_attempt_begins_anew() -> None:
    assert evidence.merge(build(0, evidence.FAILED, build_rank(0)), build(1))["ranks"] == []
