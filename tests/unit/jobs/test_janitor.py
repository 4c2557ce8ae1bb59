"""The janitor's plan: what is over, what is stuck, what nobody owns any more; and never anything else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainmaster.api.labels import CODE_MAP, CODE_OF
from trainmaster.api.resources import JOB_SETS, JOBS, PODS
from trainmaster.jobs.janitor import (
    CLEAR,
    FinishedJobFilter,
    describe_age,
    plan_finished,
    plan_left_code,
    plan_orphans,
    plan_stuck,
)
from trainmaster.jobs.models.trainjobs import TrainJob

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 10, tzinfo=UTC)
Thing = dict[str, Any]


def thing(name: str, owner: tuple[str, str] | None = None, **meta: Any) -> Thing:
    references = [{"kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}] if owner else []
    head = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": references, **meta}
    return {"metadata": head, "spec": {}}


def trainjob(name: str, end: str = "", when: str = "2026-01-09T00:00:00Z", **meta: Any) -> Thing:
    conditions = [{"type": end, "status": "True", "lastTransitionTime": when}] if end else []
    return {**thing(name, **meta), "status": {"conditions": conditions}}


JOBS_SEEN = [
    trainjob("running"),
    trainjob("done", "Complete"),
    trainjob("broken", "Failed"),
    trainjob("fresh", "Complete", "2026-01-09T23:59:00Z"),
    trainjob("going", "Complete", deletionTimestamp="2026-01-09T00:00:00Z"),
    trainjob("owned", "Complete", owner=("Experiment", "e")),
]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (FinishedJobFilter(), ["done", "broken", "fresh", "owned"]),
        (FinishedJobFilter(state="Failed"), ["broken"]),
        (FinishedJobFilter(older_than=3600), ["done", "broken", "owned"]),
        (FinishedJobFilter(owner="Experiment/e"), ["owned"]),
        (FinishedJobFilter(owner="e"), ["owned"]),
        (FinishedJobFilter(owner="Job/e"), []),
    ],
    ids=["all", "state", "age", "owner", "owner by name", "another owner"],
)
def test_only_what_is_over_and_chosen_goes(wanted: FinishedJobFilter, names: list[str]) -> None:
    assert [item.name for item in plan_finished(map(TrainJob, JOBS_SEEN), wanted, NOW)] == names


def test_a_finalizer_is_cleared_only_where_the_object_is_already_deleted() -> None:
    gone = {"deletionTimestamp": "2026-01-09T00:00:00Z"}
    seen = [
        trainjob("stuck", "Complete", finalizers=["a.io/x"], **gone),
        trainjob("going", "Complete", finalizers=["foregroundDeletion"], **gone),
        trainjob("alive", "Complete", finalizers=["a.io/x"]),
    ]
    (item,) = plan_stuck(map(TrainJob, seen), NOW)
    assert (item.name, item.action) == ("stuck", CLEAR)
    assert item.why == "deleted 24h ago, kept by a.io/x"


def test_orphans_are_found_on_each_level_and_named_once() -> None:
    labelled = {
        "replicatedJobs": [
            {"template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}}
        ]
    }
    found = {
        JOB_SETS: [
            thing("kept", ("TrainJob", "here")),
            thing("lost", ("TrainJob", "away")),
            {**thing("cut off"), "spec": labelled},
            thing("of somebody"),
        ],
        JOBS: [thing("lost-job", ("JobSet", "lost")), thing("dangling", ("JobSet", "never")), thing("mine")],
        PODS: [thing("lost-pod", ("Job", "lost-job")), thing("kept-pod", ("Job", "mine")), thing("alone")],
    }
    plan = [(item.gvr.plural, item.name) for item in plan_orphans([TrainJob(trainjob("here"))], found)]
    assert plan == [("jobsets", "lost"), ("jobsets", "cut off"), ("jobs", "dangling")]


def test_code_is_left_over_a_day_after_a_crash_unless_a_job_refers_to_it() -> None:
    def code(name: str, day: int, **meta: Any) -> Thing:
        return thing(name, labels={CODE_OF: "j"}, creationTimestamp=f"2026-01-{day:02}T00:00:00Z", **meta)

    jobs = [TrainJob(trainjob("here", annotations={CODE_MAP: "needed"}))]
    owned = {"ownerReferences": [{"kind": "TrainJob", "name": "j", "uid": "1"}]}
    seen = [code("left", 8), code("needed", 8), code("new", 9), code("owned", 8, **owned)]
    (item,) = plan_left_code(jobs, seen, NOW)
    assert (item.gvr.plural, item.name) == ("configmaps", "left")
    assert item.why == "code of the TrainJob j, which was not created"


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (300, "5m"), (86400, "24h"), (864000, "10d"), (-3, "0s")])
def test_ages_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert describe_age(seconds) == text
