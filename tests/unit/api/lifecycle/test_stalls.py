"""The policy of a job about its stalls, and whether its last step is done."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.labels import ON_STALL
from trainmaster.api.lifecycle.stalls import FAIL, OBSERVE, POLICIES, parse_policy, read_policy
from trainmaster.api.lifecycle.terms import check_annotations
from trainmaster.api.training.pace import is_at_end
from trainmaster.api.training.restarts import StallCount, decide_next, is_asked_for, read_count, read_wanted

pytestmark = pytest.mark.unit


def annotated(policy: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {ON_STALL: policy}}}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_says_its_policy(policy: str) -> None:
    assert parse_policy(policy) == policy == read_policy(annotated(policy), OBSERVE)
    assert list(check_annotations(annotated(policy))) == []


@pytest.mark.parametrize("text", ["", "Restart", "restart ", "kill", "observe,fail"])
def test_another_word_is_refused_and_counts_as_none(text: str) -> None:
    [error] = check_annotations(annotated(text))
    assert error.path == f"metadata.annotations[{ON_STALL}]"
    assert "must be observe, restart or fail" in error.detail
    assert read_policy(annotated(text), FAIL) == FAIL


@pytest.mark.parametrize(
    ("report", "is_over"),
    [
        ({}, False),
        ({"progressPercentage": 99}, False),
        ({"progressPercentage": 100}, True),
        ({"metrics": [{"name": "current_step", "value": "9"}, {"name": "total_steps", "value": "10"}]}, False),
        ({"metrics": [{"name": "current_step", "value": "10"}, {"name": "total_steps", "value": "10"}]}, True),
        ({"metrics": [{"name": "current_step", "value": "0"}, {"name": "total_steps", "value": "0"}]}, False),
        ({"metrics": [{"name": "current_step", "value": "nan"}, {"name": "total_steps", "value": "x"}]}, False),
    ],
)
def test_the_last_step_is_that_of_the_total(report: dict[str, Any], is_over: bool) -> None:
    assert is_at_end(report) is is_over


def test_the_status_asks_for_an_attempt_as_the_annotation_does() -> None:
    count = StallCount(restarts=1, attempt=3, furthest="7")
    trainjob = {"metadata": {"annotations": {"trainmaster.dev/restart": "2"}}, "status": {"stalls": count.to_wire()}}
    jobset = {"metadata": {"annotations": {"trainmaster.dev/first-attempt": "2"}}}
    assert read_count(trainjob) == count
    assert read_wanted(trainjob) == 3
    assert is_asked_for(trainjob, jobset)
    assert decide_next(trainjob, jobset) == 4
    assert read_count({"metadata": {}}) == StallCount()
