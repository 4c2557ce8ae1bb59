"""A restart that somebody asks for, pass by pass: what is deleted, under which condition, and what is never deleted."""

from __future__ import annotations

import pytest

from tests.unit.controllers.world import World, make_runtime, make_trainjob
from trainmaster.api.labels import FIRST_ATTEMPT, RESTART
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, TRAIN_JOBS
from trainmaster.client.writes import Delete
from trainmaster.controllers.trainjob.reconciler import CONTROLLER
from trainmaster.engine.plan import Plan

pytestmark = pytest.mark.unit

NAME = "a-torch"


@pytest.fixture
def world() -> World:
    """A job that runs."""
    made = World()
    made.add(CLUSTER_TRAINING_RUNTIMES, make_runtime())
    made.add(TRAIN_JOBS, make_trainjob(name=NAME))
    made.run(CONTROLLER, NAME)
    counts = {"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}
    made.merge(JOB_SETS, NAME, {"status": {"replicatedJobsStatus": [counts]}})
    made.run(CONTROLLER, NAME)
    return made


def ask(world: World, attempt: str) -> None:
    world.merge(TRAIN_JOBS, NAME, {"metadata": {"annotations": {RESTART: attempt}}})


def end_jobset(world: World, kind: str) -> None:
    condition = {"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip  # noqa: E501
    world.merge(JOB_SETS, NAME, {"status": {"conditions": [condition]}})


def list_deletions(plan: Plan) -> list[Delete]:
    return [write for write in plan.all_writes if isinstance(write, Delete)]


def get_waiting(world: World) -> Object:
    found: Object = world.get(TRAIN_JOBS, NAME)["status"].get("waiting") or {}
    return found


def test_the_jobset_goes_only_as_it_was_looked_at(world: World) -> None:
    ask(world, "1")
    meta = world.get(JOB_SETS, NAME)["metadata"]
    plan = world.run(CONTROLLER, NAME)
    want = Delete(JOB_SETS, "default", NAME, meta["uid"], meta["resourceVersion"], "Foreground")
    assert list_deletions(plan) == [want]
    assert get_waiting(world)["reason"] == "Restarting"
    assert [note.warning for note in plan.notes] == [False]


def test_while_it_goes_nothing_is_deleted_twice_and_nothing_is_made(world: World) -> None:
    ask(world, "1")
    world.merge(JOB_SETS, NAME, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert list_deletions(world.run(CONTROLLER, NAME)) == []
    assert get_waiting(world)["reason"] == "Restarting"
    assert world.run(CONTROLLER, NAME).all_writes == ()


def test_once_it_is_gone_the_next_one_is_made_and_asks_for_nothing_more(world: World) -> None:
    ask(world, "3")
    world.run(CONTROLLER, NAME)
    assert world.find(JOB_SETS, "default", NAME) is None
    world.run(CONTROLLER, NAME)
    assert get_waiting(world)["reason"] == "JobSetMissing", "first it is proved that the job has not ended"
    assert world.find(JOB_SETS, "default", NAME) is None
    world.run(CONTROLLER, NAME)
    jobset = world.get(JOB_SETS, NAME)
    assert jobset["metadata"]["annotations"][FIRST_ATTEMPT] == "3"
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["annotations"][FIRST_ATTEMPT] == "3"
    world.run(CONTROLLER, NAME)
    assert world.run(CONTROLLER, NAME).all_writes == ()


@pytest.mark.parametrize(("kind", "want"), [("Completed", "Complete"), ("Failed", "Failed")])
def test_a_job_whose_jobset_has_ended_is_not_restarted(world: World, kind: str, want: str) -> None:
    end_jobset(world, kind)
    ask(world, "1")
    plan = world.run(CONTROLLER, NAME)
    assert list_deletions(plan) == []
    assert [condition["type"] for condition in world.get(TRAIN_JOBS, NAME)["status"]["conditions"]] == [want]
    assert list_deletions(world.run(CONTROLLER, NAME)) == []


@pytest.mark.parametrize("text", ["0", "-1", "soon", "", "99999999999"])
def test_what_is_no_higher_attempt_asks_for_nothing(world: World, text: str) -> None:
    ask(world, text)
    assert list_deletions(world.run(CONTROLLER, NAME)) == []
