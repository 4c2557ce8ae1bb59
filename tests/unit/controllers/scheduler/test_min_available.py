"""v1 jobs that start with a part of their Pods (`schedulingPolicy.minAvailable`)."""

from __future__ import annotations

import pytest

from tests.unit.controllers.scheduler.stage import Stage
from tests.unit.controllers.world import NOW
from trainmaster.api.resources import PODS
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.controllers.explain.reasons import explain
from trainmaster.controllers.scheduler.reconciler import CONTROLLER
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

SHAPE = {"Master": 1, "Worker": 4}


def set_least(stage: Stage, name: str, least: int) -> None:
    patch = {"metadata": {"generation": 2}, "spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": least}}}}
    stage.merge(PYTORCH.gvr, name, patch)


def test_s09_more_than_the_job_has_keeps_it_waiting_until_that_is_changed() -> None:
    stage = Stage()
    names = stage.add_v1_job("a", 10, {"Master": 1, "Worker": 1}, cpu="1")
    other = stage.add_gang("b", 1, cpu="8")
    stage.look()
    assert stage.list_bound(*names, *other) == other, "it holds up nobody"
    why = "the job starts with 10 Pods (schedulingPolicy.minAvailable) and has only 2 Pods"
    assert stage.get_sentence(*names) == f"{why}: set minAvailable to 2 or less"
    assert stage.get_condition(names[0]) == f"0/1 nodes are available: {why}."
    stage.end(*other)
    set_least(stage, "a", 2)
    stage.look()
    assert stage.is_bound(*names)


def test_a_job_starts_with_as_many_pods_as_it_needs_first_those_that_decide() -> None:
    stage = Stage(cpu="4")
    busy = stage.add_pod("busy", cpu="2")["metadata"]["name"]
    stage.look()
    names = stage.add_v1_job("a", 2, SHAPE, cpu="1")
    plan = stage.run(CONTROLLER, "local", namespace="")
    assert len(plan.all_writes) == 2, "in one plan"
    stage.look()
    assert stage.list_bound(*names) == ["a-master-0", "a-worker-0"]
    stage.end(busy)
    stage.look()
    assert stage.list_bound(*names) == ["a-master-0", "a-worker-0", "a-worker-1", "a-worker-2"], "as room appears"
    assert stage.get_condition("a-worker-3") == "0/1 nodes are available: 1 Insufficient cpu."
    stage.end("a-worker-0")
    stage.look()
    assert stage.list_bound(*names) == names


def test_less_than_the_minimum_is_not_enough() -> None:
    stage = Stage(cpu="4")
    busy = stage.add_pod("busy", cpu="2")["metadata"]["name"]
    stage.look()
    names = stage.add_v1_job("a", 3, SHAPE, cpu="1")
    stage.look()
    assert stage.list_bound(*names) == []
    assert stage.get_sentence(*names).startswith("waiting for 3 CPUs: 2 of 4 free; first in the queue")
    stage.end(busy)
    stage.look()
    assert len(stage.list_bound(*names)) == 4


def test_a_minimum_that_the_machine_does_not_have_is_said() -> None:
    stage = Stage(cpu="2")
    names = stage.add_v1_job("a", 3, SHAPE, cpu="1")
    stage.look()
    assert "the job asks for 3 CPUs, node local has 2" in stage.get_sentence(*names)


def test_nothing_is_set_aside_for_pods_beyond_the_minimum() -> None:
    stage = Stage(cpu="4")
    names = stage.add_v1_job("a", 2, {"Worker": 3}, cpu="1500m")
    behind = stage.add_gang("b", 1, cpu="1")
    stage.look()
    assert stage.list_bound(*names) == names[:2]
    assert stage.is_bound(*behind)


def test_the_room_of_the_minimum_is_kept_while_a_pod_is_replaced() -> None:
    stage = Stage(cpu="3")
    names = stage.add_v1_job("a", 2, {"Master": 1, "Worker": 2}, cpu="1")
    stage.look()
    assert stage.is_bound(*names)
    master, rest = stage.get(PODS, "a-master-0"), names[1:]
    stage.remove("a-master-0")
    behind = stage.add_gang("b", 1, cpu="1")
    stage.look()
    assert stage.list_bound(*rest, *behind) == rest, "the master can come back"
    meta = {key: value for key, value in master["metadata"].items() if key != "uid"}
    stage.add(PODS, {"metadata": meta, "spec": {"containers": master["spec"]["containers"]}})
    stage.look()
    assert stage.is_bound("a-master-0")


@pytest.mark.parametrize("scheduler", ["volcano", "scheduler-plugins-scheduler"])
def test_pods_for_gang_schedulers_of_clusters_are_placed(scheduler: str) -> None:
    stage = Stage()
    names = stage.add_v1_job("a", 2, {"Worker": 2}, cpu="1")
    for name in names:
        stage.merge(PODS, name, {"spec": {"schedulerName": scheduler}})
    stage.look()
    assert stage.is_bound(*names)


def test_explain_says_what_to_change() -> None:
    stage = Stage()
    stage.add_v1_job("a", 5, {"Worker": 2}, cpu="1")
    stage.look()
    waiting = {"reason": "Unschedulable", "message": "x", "since": "2026-01-01T00:00:00Z"}
    stage.merge(PYTORCH.gvr, "a", {"status": {"waiting": waiting}})
    found = explain(stage, "default", "a", Now(NOW))
    assert found is not None
    assert found.sentence.startswith("the job starts with 5 Pods (schedulingPolicy.minAvailable) and has only 2 Pods")
    assert found.unblock == ("set minAvailable to 2 or less",)
