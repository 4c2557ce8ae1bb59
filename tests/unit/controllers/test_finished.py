"""What is over is not looked at any more: no change of it, and no start, wakes a controller without need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.world import NOW, World, make_job, make_jobset, make_runtime, make_trainjob
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.controllers.job.reconciler import CONTROLLER as JOB
from trainmaster.controllers.jobset.reconciler import CONTROLLER as JOB_SET
from trainmaster.controllers.lifecycle.finish import FinishedByRuntime
from trainmaster.controllers.trainjob.reconciler import CONTROLLER as TRAIN_JOB
from trainmaster.controllers.trainjob.runtimes import MissingRuntimes
from trainmaster.engine.controller import Controller
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time

pytestmark = pytest.mark.unit

CONTROLLERS = (TRAIN_JOB, JOB_SET, JOB)
KINDS = (TRAIN_JOBS, JOB_SETS, JOBS, PODS, CONFIG_MAPS)


def list_woken(world: World, gvr: GVR, obj: Object) -> list[tuple[str, str]]:
    """(controller, name) of every look that a notice of the object leads to."""
    found = []
    for controller in CONTROLLERS:
        for source in controller.sources:
            if source.gvr == gvr:
                found += [(controller.name, request.name) for request in source.requests(world, obj)]
    return found


def list_all_woken(world: World) -> list[tuple[str, str]]:
    return [woken for gvr in KINDS for obj in world.list(gvr) for woken in list_woken(world, gvr, obj)]


def settle(world: World, *controllers: Controller) -> None:
    for _ in range(10):
        before = world._counter
        for controller in controllers:
            for obj in list(world.list(controller.kind)):
                world.run(controller, obj["metadata"]["name"])
        if world._counter == before:
            return
    raise AssertionError("does not come to rest")


def make_finished(**spec: Any) -> World:
    """A TrainJob with all that it had, completed."""
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime())
    world.add(TRAIN_JOBS, make_trainjob(name="tj", **spec))
    settle(world, *CONTROLLERS)
    for pod in world.list(PODS):
        ended = {"exitCode": 0, "finishedAt": format_time(NOW)}
        status = {"phase": "Succeeded", "containerStatuses": [{"name": "node", "state": {"terminated": ended}}]}
        world.merge(PODS, pod["metadata"]["name"], {"status": status})
    settle(world, *CONTROLLERS)
    assert world.get(TRAIN_JOBS, "tj")["status"]["conditions"][0]["type"] == "Complete"
    return world


def test_nothing_of_a_finished_trainjob_wakes_anybody() -> None:
    world = make_finished()
    assert len(world.list(PODS)) == 1
    assert list_all_woken(world) == []


def test_a_finished_trainjob_whose_jobset_goes_is_not_looked_at_either() -> None:
    world = make_finished()
    jobset = world.get(JOB_SETS, "tj")
    del world.objects[JOB_SETS, "default", "tj"]
    assert list_woken(world, JOB_SETS, jobset) == []
    assert list_woken(world, TRAIN_JOBS, world.get(TRAIN_JOBS, "tj")) == []


def test_a_pod_that_a_finished_job_left_behind_wakes_it() -> None:
    world = make_finished()
    pod = world.list(PODS)[0]
    late = world.merge(PODS, pod["metadata"]["name"], {"status": {"phase": "Running"}})
    assert list_woken(world, PODS, late) == [("job", "tj-node-0")]


def test_a_job_that_a_finished_jobset_left_behind_wakes_it() -> None:
    world = make_finished()
    job = world.get(JOBS, "tj-node-0")
    late = world.merge(JOBS, "tj-node-0", {"status": {**job["status"], "conditions": []}})
    assert ("jobset", "tj") in list_woken(world, JOBS, late)
    assert list_woken(world, JOB_SETS, world.get(JOB_SETS, "tj")) == [("jobset", "tj")], "also after a restart"


def test_counts_that_are_not_told_yet_are_told() -> None:
    world = make_finished()
    entry = world.get(JOB_SETS, "tj")["status"]["replicatedJobsStatus"][0]
    jobset = world.merge(JOB_SETS, "tj", {"status": {"replicatedJobsStatus": [{**entry, "failed": 1}]}})
    assert ("trainjob", "tj") in list_woken(world, JOB_SETS, jobset)


@pytest.mark.parametrize("gvr", [JOBS, JOB_SETS])
def test_what_goes_after_a_time_is_still_looked_at(gvr: GVR) -> None:
    world = make_finished()
    name = "tj" if gvr == JOB_SETS else "tj-node-0"
    changed = world.merge(gvr, name, {"spec": {"ttlSecondsAfterFinished": 60}})
    assert list_woken(world, gvr, changed) == [("jobset" if gvr == JOB_SETS else "job", name)]


@pytest.mark.parametrize(("gvr", "make"), [(JOBS, make_job), (JOB_SETS, make_jobset), (TRAIN_JOBS, make_trainjob)])
def test_what_is_not_over_wakes_its_controller(gvr: GVR, make: Any) -> None:
    world = World()
    obj = world.add(gvr, make(name="x"))
    assert [name for _, name in list_woken(world, gvr, obj)] == ["x"]


def test_a_finished_trainjob_that_somebody_suspends_is_looked_at() -> None:
    world = make_finished()
    changed = world.merge(TRAIN_JOBS, "tj", {"spec": {"suspend": True}})
    assert list_woken(world, TRAIN_JOBS, changed) == [("trainjob", "tj")]


def make_waiting(name: str, *, reason: str = "RuntimeNotFound", kind: str = "ClusterTrainingRuntime") -> Object:
    trainjob = make_trainjob(name=name, runtime="r")
    trainjob["spec"]["runtimeRef"]["kind"] = kind
    return {**trainjob, "status": {"waiting": {"reason": reason}}}


def test_the_summary_of_absent_runtimes_follows_every_change() -> None:
    summary = MissingRuntimes()
    summary.put(TRAIN_JOBS, make_waiting("a"))
    summary.put(TRAIN_JOBS, make_waiting("b", kind="TrainingRuntime"))
    summary.put(TRAIN_JOBS, make_waiting("c", reason="Refused"))
    assert summary.list_waiting("", "r") == (Request("default", "a"),)
    assert summary.list_waiting("default", "r") == (Request("default", "b"),)
    summary.put(TRAIN_JOBS, make_waiting("c"))
    summary.put(TRAIN_JOBS, make_waiting("a", reason="Refused"))
    assert summary.list_waiting("", "r") == (Request("default", "c"),)
    summary.drop(TRAIN_JOBS, "default", "c")
    summary.drop(TRAIN_JOBS, "default", "unknown")
    assert summary.list_waiting("", "r") == ()


def test_the_summary_of_finished_trainjobs_follows_every_change() -> None:
    summary, runtime = FinishedByRuntime(), make_runtime(name="r")
    over = {"type": "Complete", "status": "True", "lastTransitionTime": format_time(NOW)}
    for name in ("a", "b"):
        summary.put(TRAIN_JOBS, make_trainjob(name=name, runtime="r"))
    assert summary.list_of(runtime) == ()
    for name in ("a", "b", "a"):
        summary.put(TRAIN_JOBS, {**make_trainjob(name=name, runtime="r"), "status": {"conditions": [over]}})
    assert summary.list_of(runtime) == (Request("default", "a"), Request("default", "b"))
    summary.drop(TRAIN_JOBS, "default", "a")
    assert summary.list_of(runtime) == (Request("default", "b"),)
    assert summary.list_of(make_runtime(name="other")) == ()
