"""What a v1 job adopts, and what it deletes when it is suspended or has ended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.v1jobs.stage import V1Stage
from tests.unit.controllers.world import World
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, PODS, SERVICES
from trainmaster.api.v1jobs.frameworks import MPI, PYTORCH
from trainmaster.client.writes import Create, Delete, Patch
from trainmaster.controllers.v1jobs.reconciler import build_controller
from trainmaster.engine.plan import Plan
from trainmaster.jobs.models.v1jobs import PyTorchJob

pytestmark = pytest.mark.unit

CONTROLLER = build_controller(PyTorchJob)
NAMES = ["a-master-0", "a-worker-0"]


def make_world(**policy: Any) -> World:
    """A PyTorchJob whose Pods and Services exist."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    replicas = {name: {"replicas": 1, "template": template} for name in ("Master", "Worker")}
    world = World()
    world.add(
        PYTORCH.gvr,
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas},
        },
    )
    world.run(CONTROLLER, "a")
    return world


def set_job(world: World, patch: Object) -> None:
    world.merge(PYTORCH.gvr, "a", patch)


def end(world: World) -> None:
    for name in NAMES:
        if world.find(PODS, "default", name) is not None:
            phase = "Succeeded" if "master" in name else "Running"
            world.merge(PODS, name, {"status": {"phase": phase}})
    world.run(CONTROLLER, "a")


def disown(world: World, gvr: GVR) -> None:
    for obj in world.list(gvr):
        world.merge(gvr, obj["metadata"]["name"], {"metadata": {"ownerReferences": None}})


def list_names(world: World, gvr: GVR) -> list[str]:
    return [obj["metadata"]["name"] for obj in world.list(gvr)]


def list_deleted(plan: Plan) -> list[str]:
    return sorted(f"{write.gvr.plural} {write.name}" for write in plan.writes if isinstance(write, Delete))


def test_services_without_an_owner_are_adopted_like_pods() -> None:
    world = make_world()
    disown(world, PODS)
    disown(world, SERVICES)
    world.run(CONTROLLER, "a")
    uid = world.get(PYTORCH.gvr, "a")["metadata"]["uid"]
    owners = [obj["metadata"].get("ownerReferences") for gvr in (PODS, SERVICES) for obj in world.list(gvr)]
    assert [references and references[0]["uid"] for references in owners] == [uid] * 4


@pytest.mark.parametrize(("policy", "left"), [("All", []), ("Running", ["a-master-0"]), ("None", NAMES)])
def test_a_service_whose_pod_is_gone_is_cleaned_up_too(policy: str, left: list[str]) -> None:
    """On a cluster the operator may crash after it has deleted the Pod."""
    world = make_world(cleanPodPolicy=policy)
    end(world)
    for name in NAMES:
        if name not in left:
            del world.objects[PODS, "default", name]
    world.run(CONTROLLER, "a")
    assert list_names(world, SERVICES) == left


def test_a_suspended_job_keeps_no_service_whose_pod_is_gone() -> None:
    world = make_world()
    del world.objects[PODS, "default", "a-worker-0"]
    set_job(world, {"spec": {"runPolicy": {"suspend": True}}})
    world.run(CONTROLLER, "a")
    assert (list_names(world, PODS), list_names(world, SERVICES)) == ([], [])


def test_a_suspended_job_deletes_pods_only_once_they_are_its_own() -> None:
    world = make_world()
    disown(world, PODS)
    disown(world, SERVICES)
    set_job(world, {"spec": {"runPolicy": {"suspend": True}}})
    first = world.run(CONTROLLER, "a")
    assert list_deleted(first) == []
    second = world.run(CONTROLLER, "a")
    assert list_deleted(second) == [*(f"pods {name}" for name in NAMES), *(f"services {name}" for name in NAMES)]


def test_a_finished_job_leaves_pods_alone_that_are_not_its_own() -> None:
    world = make_world(cleanPodPolicy="All")
    end(world)
    disown(world, PODS)
    disown(world, SERVICES)
    plan = world.run(CONTROLLER, "a")
    assert plan.writes == ()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("a-worker-0", {"replica-index": "7"}),
        ("a-worker-0", {"replica-index": None}),
        ("a-worker-0", {"replica-type": "master"}),
        ("a-master-0", {"job-name": "other", "job-role": None}),
        ("a-master-0", {"operator-name": None}),
    ],
)
def test_labels_of_a_pod_that_somebody_changed_are_set_again(name: str, changed: dict[str, str | None]) -> None:
    """Otherwise the job would delete the Pod, or create another one with its name, which is refused."""
    world = make_world()
    before = {pod["metadata"]["name"]: pod["metadata"] for pod in world.list(PODS)}
    labels = {f"training.kubeflow.org/{key}": value for key, value in changed.items()}
    world.merge(PODS, name, {"metadata": {"labels": labels}})
    plan = world.run(CONTROLLER, "a")
    assert not [write for write in plan.writes if isinstance(write, Delete | Create)]
    now = world.get(PODS, name)["metadata"]
    assert (now["uid"], now["labels"]) == (before[name]["uid"], before[name]["labels"])
    (note,) = plan.notes
    assert note.reason == "PodLabelsChanged"
    assert note.message.startswith(f"Labels of pod {name} were changed; they are set again: training.kubeflow.org/")
    assert world.run(CONTROLLER, "a").all_writes == ()


def test_a_pod_of_a_type_that_the_job_does_not_have_is_deleted() -> None:
    """A job was deleted without its Pods, and created again without workers."""
    world = make_world()
    set_job(world, {"spec": {"pytorchReplicaSpecs": {"Worker": None}}})
    disown(world, PODS)
    plan = world.run(CONTROLLER, "a")
    assert list_deleted(plan) == ["pods a-worker-0", "services a-worker-0"]
    world.run(CONTROLLER, "a")
    assert list_names(world, PODS) == ["a-master-0"]


def test_the_host_file_of_an_mpi_job_is_changed_only_as_it_was_seen() -> None:
    """By then the job may be gone and the ConfigMap somebody else's."""
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 1})
    stage.play()
    stage.set_phase("a-worker-0", "Running")
    (patch,) = [one for one in stage.step().writes if isinstance(one, Patch) and one.gvr == CONFIG_MAPS]
    assert patch.patch["metadata"]["resourceVersion"]
