"""Derived runtimes: they go with the last TrainJob that refers to them, and never before the first one came."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.flow.plant import ScriptedNode, running_plant
from tests.flow.stage import make_trainjob
from tests.unit.controllers.world import NOW, World
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.writes import Delete
from trainmaster.controllers.lifecycle import derived
from trainmaster.controllers.lifecycle.derived import GRACE, reconcile
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

LATER = Now(NOW + timedelta(seconds=GRACE + 1))


def make_runtime(*, derived: bool = True, used: str = "") -> Object:
    labels = {"trainmaster.dev/derived": "true"} if derived else {}
    annotations = {"trainmaster.dev/last-used": used} if used else {}
    meta = {"name": "copy", "namespace": "default", "labels": labels, "annotations": annotations}
    return {"metadata": meta, "spec": {}}


def refer(kind: str = "TrainingRuntime", name: str = "copy") -> dict[str, Any]:
    return {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": name}


def look(world: World, now: Now = LATER) -> Plan:
    return reconcile(world, Request("default", "copy"), now)


def test_one_that_nobody_refers_to_is_deleted_at_the_revision_that_was_seen() -> None:
    world = World()
    meta = world.add(TRAINING_RUNTIMES, make_runtime())["metadata"]
    want = Delete(TRAINING_RUNTIMES, "default", "copy", meta["uid"], meta["resourceVersion"])
    assert look(world).writes == (want,)


def test_one_that_a_trainjob_refers_to_stays_and_goes_with_the_last() -> None:
    world = World()
    world.add(TRAINING_RUNTIMES, make_runtime())
    for name in ("a", "b"):
        world.add(TRAIN_JOBS, make_trainjob(name=name, runtimeRef=refer()))
    assert look(world) == NOTHING
    del world.objects[TRAIN_JOBS, "default", "a"]
    assert look(world) == NOTHING
    del world.objects[TRAIN_JOBS, "default", "b"]
    assert look(world).writes


def test_a_runtime_of_the_cluster_with_the_same_name_is_another_one() -> None:
    world = World()
    world.add(TRAINING_RUNTIMES, make_runtime())
    world.add(TRAIN_JOBS, make_trainjob(runtimeRef=refer("ClusterTrainingRuntime")))
    world.add(TRAIN_JOBS, make_trainjob(name="other", runtimeRef=refer(name="other")))
    assert look(world).writes


def test_one_that_a_person_made_stays() -> None:
    world = World()
    world.add(TRAINING_RUNTIMES, make_runtime(derived=False))
    assert look(world) == NOTHING


@pytest.mark.parametrize(
    ("used", "left"),
    [
        pytest.param("", GRACE - 60, id="new: from its birth"),
        pytest.param(format_time(NOW + timedelta(seconds=50)), GRACE - 10, id="touched: from then"),
        pytest.param("yesterday", GRACE - 60, id="no time: from its birth"),
    ],
)
def test_its_trainjob_has_time_to_follow(used: str, left: float) -> None:
    world = World()
    world.add(TRAINING_RUNTIMES, make_runtime(used=used))
    assert look(world, Now(NOW + timedelta(seconds=60))) == Plan(requeue_after=left)


def test_in_a_cluster_at_work_it_outlives_its_job_and_goes_when_that_is_deleted() -> None:
    async def main() -> tuple[int, int]:
        async with running_plant(ScriptedNode(), lifecycle=(derived.CONTROLLER,)) as plant:
            shipped = await plant.client.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
            runtime = {**shipped, "kind": "TrainingRuntime", "metadata": make_runtime()["metadata"]}
            await plant.apply((TRAINING_RUNTIMES, runtime), (TRAIN_JOBS, make_trainjob(runtimeRef=refer())))
            await asyncio.sleep(10 * GRACE)
            during = len((await plant.client.list(TRAINING_RUNTIMES, "default")).items)
            await plant.client.delete(TRAIN_JOBS, "first", "default")
            await asyncio.sleep(1)
            return during, len((await plant.client.list(TRAINING_RUNTIMES, "default")).items)

    assert run_virtual(main(), limit=86_400) == (1, 0)
