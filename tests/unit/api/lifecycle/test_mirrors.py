"""Terms of a TrainJob as annotations: what a client that does not know our fields drops comes back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.lifecycle.mirrors import mirror_terms
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, TTL_ANNOTATION

pytestmark = pytest.mark.unit

Thing = dict[str, Any]


def job(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Thing:
    return {"metadata": {"name": "j", "annotations": annotations or {}, "labels": labels or {}}, "spec": spec}


def write(new: Thing, old: Thing | None = None) -> tuple[Thing, list[str]]:
    written = deepcopy(new)
    return written, mirror_terms(written, old)


def drop(stored: Thing, *names: str) -> Thing:
    """As a client writes it whose type lacks these fields."""
    return {**stored, "spec": {name: value for name, value in stored["spec"].items() if name not in names}}


def test_a_new_job_gets_its_terms_as_annotations() -> None:
    written, warnings = write(job({"mine": "x"}, ttlSecondsAfterFinished=5, activeDeadlineSeconds=60))
    assert written["metadata"]["annotations"] == {"mine": "x", TTL_ANNOTATION: "5", DEADLINE_ANNOTATION: "60"}
    assert not warnings
    written, _ = write({**job(cleanupPolicy={"ttlSecondsAfterFinished": 0}), "metadata": {"name": "j"}})
    assert written["metadata"]["annotations"] == {TTL_ANNOTATION: "0"}
    assert write(job())[0] == job(), "without terms nothing is added"


@pytest.mark.parametrize(
    "spec",
    [
        {"ttlSecondsAfterFinished": 5},
        {"cleanupPolicy": {"ttlSecondsAfterFinished": 5}},
        {"ttlSecondsAfterFinished": 5, "cleanupPolicy": {"ttlSecondsAfterFinished": 5}},
        {"activeDeadlineSeconds": 5},
        {"ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 60, "suspend": True},
    ],
)
def test_a_field_that_a_client_drops_is_put_back_with_a_warning(spec: Thing) -> None:
    stored, _ = write(job(**spec))
    written, warnings = write(drop(stored, "ttlSecondsAfterFinished", "cleanupPolicy", "activeDeadlineSeconds"), stored)
    assert written == stored
    assert warnings and "remove the annotation trainmaster.dev/" in warnings[0]


def test_a_term_is_removed_with_field_and_annotation() -> None:
    stored, _ = write(job(ttlSecondsAfterFinished=5))
    assert write(job(), stored) == (job(), [])
    alone = job({TTL_ANNOTATION: "5"})
    assert write(alone, alone) == (alone, []), "and where only the annotation is left, with the annotation"
    assert write(job(), alone) == (job(), [])


def test_the_annotation_follows_the_field() -> None:
    stored, _ = write(job(ttlSecondsAfterFinished=5))
    written, warnings = write({**stored, "spec": {"ttlSecondsAfterFinished": 9}}, stored)
    assert (written["metadata"]["annotations"][TTL_ANNOTATION], warnings) == ("9", [])
    written, warnings = write({**stored, "metadata": {"name": "j"}}, stored)
    assert (written["metadata"]["annotations"], warnings) == ({TTL_ANNOTATION: "5"}, [])
    other = job({TTL_ANNOTATION: "7"}, ttlSecondsAfterFinished=5)
    for old in (None, stored):
        written, warnings = write(other, old)
        assert written["metadata"]["annotations"] == {TTL_ANNOTATION: "5"}
        assert warnings == [
            f"the annotation {TTL_ANNOTATION} was set to 5, because it mirrors spec.ttlSecondsAfterFinished; "
            "change the field instead"
        ]


def test_whoever_drops_the_field_and_sets_the_annotation_wants_the_annotation() -> None:
    stored, _ = write(job(ttlSecondsAfterFinished=5))
    wanted = job({TTL_ANNOTATION: "7"})
    assert write(wanted, stored) == (wanted, [])


def test_of_jobs_from_before_there_were_mirrors_only_those_with_a_queue_are_taken_to_be_written_by_kueue() -> None:
    queued = job(labels={QUEUE_NAME: "team"}, ttlSecondsAfterFinished=5)
    written, _ = write(drop(queued, "ttlSecondsAfterFinished"), queued)
    assert written["spec"] == {"ttlSecondsAfterFinished": 5}
    assert written["metadata"]["annotations"] == {TTL_ANNOTATION: "5"}
    plain = job(ttlSecondsAfterFinished=5)
    assert write(job(), plain) == (job(), [])


@pytest.mark.parametrize("value", [None, True, "5", 1.5, [], {}])
def test_what_is_no_number_is_left_to_validation(value: Any) -> None:
    new = job(ttlSecondsAfterFinished=value, cleanupPolicy=value)
    assert write(new) == (new, [])
    assert write({**new, "spec": value}, new)[1] == []
