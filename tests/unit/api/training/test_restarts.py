"""Which attempt a restart asks for."""

from __future__ import annotations

import pytest

from trainmaster.api.labels import FIRST_ATTEMPT, RESTART
from trainmaster.api.meta import Object
from trainmaster.api.training.restarts import decide_next, is_asked_for
from trainmaster.jobs.kinds import find_place

pytestmark = pytest.mark.unit


def make(key: str, value: str, restarts: int = 0) -> Object:
    return {"metadata": {"annotations": {key: value} if value else {}}, "status": {"restarts": restarts}}


@pytest.mark.parametrize(
    ("asked", "first", "restarts", "want"),
    [("", "", 0, 1), ("", "", 3, 4), ("4", "4", 0, 5), ("4", "4", 2, 7), ("4", "", 0, 5), ("soon", "", 0, 1)],
    ids=["the first", "after restarts", "again", "again after restarts", "not yet done", "what is no number"],
)
def test_the_next_attempt_comes_after_all_so_far(asked: str, first: str, restarts: int, want: int) -> None:
    trainjob, jobset = make(RESTART, asked), make(FIRST_ATTEMPT, first, restarts)
    assert decide_next(trainjob, jobset) == want
    assert is_asked_for(make(RESTART, str(want)), jobset)


def test_a_smaller_number_asks_for_nothing() -> None:
    assert not is_asked_for(make(RESTART, "1"), make(FIRST_ATTEMPT, "2"))
    assert not is_asked_for(make(RESTART, ""), make(FIRST_ATTEMPT, ""))


def test_the_place_of_a_pod_counts_attempts_over_all_jobsets() -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-uid": "u",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": "2",
    }
    place = find_place({"metadata": {"name": "p", "labels": labels, "annotations": {FIRST_ATTEMPT: "3"}}})
    assert place is not None
    assert place.attempt == 5
