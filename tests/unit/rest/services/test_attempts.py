"""Attempts with what the job reported in them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.history.curves.series import Point
from trainmaster.rest.services.attempts import build_attempts

pytestmark = pytest.mark.unit


def make_attempt(number: int, began: str | None = None) -> dict[str, Any]:
    return {"attempt": number, "began_at": began, "ended_at": None, "workers": [], "verdict": None}


def test_an_attempt_begins_with_its_first_report_at_the_latest_and_has_its_steps() -> None:
    points = [
        Point(10, metrics={"current_step": 1.0}),
        Point(20, metrics={"current_step": 9.0}),
        Point(30, attempt=1),
        Point(40, metrics={"current_step": 5.0}, attempt=1),
    ]
    attempts = [make_attempt(0, "1970-01-01T00:00:15Z"), make_attempt(1, "1970-01-01T00:00:25Z"), make_attempt(2)]
    first, second, third = build_attempts(attempts, points)
    assert (first.began_at, first.first_step, first.last_step) == ("1970-01-01T00:00:10Z", 1.0, 9.0)
    assert (second.began_at, second.first_step, second.last_step) == ("1970-01-01T00:00:25Z", 5.0, 5.0)
    assert (third.began_at, third.first_step, third.last_step) == (None, None, None)
