"""What a draft makes of the decisions of a pass."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.conditions import build_condition
from trainmaster.api.resources import JOBS
from trainmaster.client.writes import Delete, Patch
from trainmaster.engine.draft import Draft, ObjectDraft, build_delete, build_patch
from trainmaster.engine.plan import NOTHING, Effect, Note
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit

HEAD = {"uid": "u1", "resourceVersion": "7"}


def make_object(**status: Any) -> ObjectModel:
    return ObjectModel({"metadata": {"name": "a", "namespace": "b", **HEAD}, "status": status})


def test_writes_name_what_was_looked_at() -> None:
    obj = make_object()
    marks = {"metadata": {"labels": {"x": "y"}}}
    assert build_patch(JOBS, obj, {"spec": {}}) == Patch(JOBS, "b", "a", {"metadata": {"uid": "u1"}, "spec": {}})
    assert build_patch(JOBS, obj, marks, versioned=True).patch == {"metadata": {**HEAD, "labels": {"x": "y"}}}
    assert build_delete(JOBS, obj) == Delete(JOBS, "b", "a", "u1")
    assert build_delete(JOBS, obj, versioned=True, propagation="Foreground") == Delete(
        JOBS, "b", "a", "u1", "7", "Foreground"
    )


def test_a_draft_of_nothing_is_no_plan() -> None:
    assert Draft().build_plan() == NOTHING
    draft = ObjectDraft(JOBS, make_object(active=1))
    draft.annotations = {"absent": None}
    draft.wake_after(None)
    assert draft.build_plan() == NOTHING


def test_a_draft_collects_and_the_earliest_wake_up_counts() -> None:
    draft, obj = Draft(), make_object()
    gone = build_delete(JOBS, obj)
    draft.write(gone)
    draft.note(obj, "Reason", "text", warning=True)
    draft.effects.append(Effect("archive", {}))
    for seconds in (5.0, 2.0, None, 3.0):
        draft.wake_after(seconds)
    plan = draft.build_plan()
    assert (plan.writes, plan.status, plan.requeue_after) == ((gone,), None, 2.0)
    assert plan.notes == (Note(obj.raw, "Reason", "text", warning=True),)
    assert plan.effects == (Effect("archive", {}),)


def test_the_status_is_one_patch_of_what_has_changed() -> None:
    draft = ObjectDraft(JOBS, make_object(active=1, ready=1))
    draft.status["ready"] = 0
    draft.annotations = {"books": "{}"}
    body = {"metadata": {**HEAD, "annotations": {"books": "{}"}}, "status": {"ready": 0}}
    assert draft.build_plan().status == Patch(JOBS, "b", "a", body, "status")
    unversioned = ObjectDraft(JOBS, make_object(), versioned=False)
    unversioned.status["ready"] = 1
    assert unversioned.build_plan().all_writes == (
        Patch(JOBS, "b", "a", {"metadata": {"uid": "u1"}, "status": {"ready": 1}}, "status"),
    )


def test_conditions_are_those_of_the_status_to_be() -> None:
    now = VirtualClock().now()
    obj = make_object(conditions=[build_condition("Suspended", True, "R", "m", now)])
    draft = ObjectDraft(JOBS, obj)
    draft.set_condition(build_condition("Failed", True, "R", "m", now))
    assert draft.is_true("Suspended")
    assert draft.is_true("Failed")
    assert draft.find_condition("Complete") is None
    assert not obj.is_true("Failed"), "the object stays as it was"


def test_a_status_that_is_postponed_takes_its_events_along() -> None:
    draft, obj = ObjectDraft(JOBS, make_object()), make_object()
    draft.status["ready"] = 1
    draft.note(obj, "Ready", "all Pods are ready")
    draft.postpone_status()
    draft.note(obj, "Waiting", "later")
    plan = draft.build_plan()
    assert plan.status is None
    assert [note.reason for note in plan.notes] == ["Waiting"]
