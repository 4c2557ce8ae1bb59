"""The rows that a bench reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench._report import ROWS_VARIABLE, Report, Row

pytestmark = pytest.mark.unit


def test_kept_and_missed_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROWS_VARIABLE, str(tmp_path / "rows"))
    report = Report()
    assert report.check("jobs per second", 1234.5, at_least=150, unit="/s", anchor="8.4/s with Kubernetes")
    assert report.exit_code == 0
    assert not report.check("submit p99", 3.456, at_most=3, unit=" ms")
    assert report.exit_code == 1
    assert report.check("wrong answers", 0, at_most=0)
    rows = [Row(**json.loads(line)) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows == report.rows
    assert rows == [
        Row("jobs per second", "at least 150/s", "1,234/s", "8.4/s with Kubernetes", True),
        Row("submit p99", "at most 3 ms", "3.46 ms", "", False),
        Row("wrong answers", "at most 0", "0", "", True),
    ]


def test_a_promise_has_one_bound() -> None:
    with pytest.raises(ValueError, match="either at_most or at_least"):
        Report().check("x", 1.0)
    with pytest.raises(ValueError, match="either at_most or at_least"):
        Report().check("x", 1.0, at_most=1, at_least=1)
