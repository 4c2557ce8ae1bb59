"""Scheduler: Pods go to the one node, or say why not."""

from __future__ import annotations

import pytest

from tests.unit.controllers.world import World
from trainmaster.api.resources import NODES, PODS
from trainmaster.controllers.scheduler.reconciler import CONTROLLER, map_node
from trainmaster.engine.request import Request

pytestmark = pytest.mark.unit


def make_world(*, node: bool = True, **spec: object) -> World:
    world = World()
    if node:
        status = {"allocatable": {"cpu": "2", "memory": "1Gi"}}
        world.add(NODES, {"metadata": {"name": "local", "labels": {"zone": "here"}}, "status": status})
    world.add(PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [], **spec}})
    return world


def get_message(world: World) -> str:
    condition = world.get(PODS, "p")["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    return str(condition["message"])


def test_a_pod_is_bound_to_the_local_node_once() -> None:
    world = make_world(nodeSelector={"zone": "here"})
    plan = world.run(CONTROLLER, "p")
    assert world.get(PODS, "p")["spec"]["nodeName"] == "local"
    assert [note.message for note in plan.notes] == ["Successfully assigned default/p to local"]
    assert world.run(CONTROLLER, "p").all_writes == ()


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"nodeSelector": {"zone": "there"}}, "didn't match Pod's node affinity/selector", id="selector"),
        pytest.param({"affinity": {"nodeAffinity": {}}}, "spec.affinity", id="affinity"),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            id="a device that is not there",
        ),
    ],
)
def test_a_pod_that_does_not_fit_says_why_once(spec: dict[str, object], want: str) -> None:
    world = make_world(**spec)  # type: ignore[arg-type]  # keyword arguments pass through
    world.run(CONTROLLER, "p")
    assert want in get_message(world)
    assert world.run(CONTROLLER, "p").all_writes == ()


def test_the_node_wakes_the_pods_that_waited_for_it() -> None:
    world = make_world(node=False)
    world.run(CONTROLLER, "p")
    assert "has not registered" in get_message(world)
    node = world.add(NODES, {"metadata": {"name": "local"}})
    assert list(map_node(world, node)) == [Request("default", "p")]
    world.run(CONTROLLER, "p")
    assert world.get(PODS, "p")["spec"]["nodeName"] == "local"
