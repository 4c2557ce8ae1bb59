"""What is wrong is refused at once with what would be right, or said in `status.waiting` and an event."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.trainjob.stage import (
    Stage,
    make_job,
    make_jobs,
    make_patch,
    make_runtime,
    make_trainjob,
    play,
)
from tests.unit.controllers.world import NOW, World
from tests.unit.controllers.world import make_runtime as make_plain_runtime
from tests.unit.controllers.world import make_trainjob as make_plain_trainjob
from trainmaster.api.labels import ALLOW_DELETE_IN_USE
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.status import StatusError, unknown_path
from trainmaster.client.contract import PatchType
from trainmaster.client.writes import Create, WriteRefusal
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.engine.apply import is_passing
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

TORCH = {"numNodes": 2, "torch": {}}
GPUS = {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "4"}}


def pod(**spec: Any) -> Object:
    return {"spec": spec}


def override(job: str, **spec: Any) -> Object:
    return {"podTemplateOverrides": [{"targetJobs": [{"name": job}], "spec": spec}]}


def flat(job: str, **spec: Any) -> Object:
    return {"podSpecOverrides": [{"targetJobs": [{"name": job}], **spec}]}


def patch(job: str, **spec: Any) -> Object:
    return {"runtimePatches": [make_patch(job=job, pod={"spec": spec})]}


@pytest.mark.parametrize("shape", [override, flat, patch])
@pytest.mark.parametrize(
    ("job", "spec", "wants"),
    [
        pytest.param("worker", {"nodeSelector": {"a": "b"}}, ["worker", "dataset-initializer"], id="job"),
        pytest.param("node", {"containers": [{"name": "trainer"}]}, ["runtime job node: trainer; it has node"], id="c"),
        pytest.param("node", {"initContainers": [{"name": "x"}]}, ["initContainer", "it has none"], id="init"),
        pytest.param(
            "node",
            {"containers": [{"name": "node", "volumeMounts": [{"name": "gone", "mountPath": "/x"}]}]},
            ["no such volume; its volumes: initializer"],
            id="volume",
        ),
        pytest.param(
            "node",
            {"containers": [{"name": "node", "env": [{"name": "A", "value": "b"}]}]},
            ["must not have envs"],
            id="e",
        ),
        pytest.param(
            "node", {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}, ["volumes"], id="v"
        ),
    ],
)
def test_an_override_that_cannot_be_is_refused_with_what_there_is(
    shape: Any, job: str, spec: Object, wants: list[str]
) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime(TORCH))
        with pytest.raises(StatusError) as caught:
            await stage.create(TRAIN_JOBS, make_trainjob(**shape(job, **spec)))
        assert caught.value.code == 403
        for want in wants:
            assert want in caught.value.message

    play(test)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"labels": {"a": "not a label"}}, "spec.labels", id="label of the JobSet"),
        pytest.param(
            {"runtimePatches": [make_patch(metadata={"labels": {"a": "not a label"}})]}, "metadata.labels", id="patched"
        ),
        pytest.param(
            {"runtimePatches": [make_patch(metadata={"name": "x"})]}, "only labels and annotations", id="other metadata"
        ),
        pytest.param(
            {"runtimePatches": [{"manager": ["a"]}]}, "spec.runtimePatches[0].manager", id="a list of managers"
        ),
        pytest.param(
            {"trainer": {"resourcesPerNode": GPUS}}, "spec.trainer.resourcesPerNode", id="overcommitted device"
        ),
        pytest.param({"initializer": {"dataset": {}}}, "must have volumeMount with name - initializer", id="no mount"),
        pytest.param(
            {"podSpecOverrides": [{"targetJobs": [{"name": "node"}]}, {"targetJobs": [{"name": "node"}]}]},
            "Duplicate value",
            id="the 2.0 shape names a job once",
        ),
    ],
)
def test_other_input_that_no_pod_can_have_is_refused(spec: Object, want: str) -> None:
    async def test(stage: Stage) -> None:
        jobs = make_jobs()
        dataset = jobs[0]["template"]["spec"]["template"]["spec"]
        del dataset["containers"][0]["volumeMounts"]
        await stage.create_runtime(make_runtime(TORCH, jobs=jobs))
        with pytest.raises(StatusError) as caught:
            await stage.create(TRAIN_JOBS, make_trainjob(**spec))
        assert want in caught.value.message

    play(test)


def test_the_longest_name_depends_on_the_jobs_and_their_pods() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime(TORCH, jobs=[make_job("node", label="trainer")]))
        with pytest.raises(StatusError, match="no more than 47 characters"):
            await stage.create(TRAIN_JOBS, make_trainjob(name="a" * 48, trainer={"numNodes": 11}))
        await stage.create(TRAIN_JOBS, make_trainjob(name="a" * 48, trainer={"numNodes": 10}))

    play(test)


@pytest.mark.parametrize(
    ("value", "let_in"), [pytest.param("2", True, id="true anyway"), pytest.param("3", False, id="another number")]
)
def test_a_reserved_variable_is_let_in_only_when_it_says_the_same(value: str, let_in: bool) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime(TORCH))
        trainjob = make_trainjob(trainer={"env": [{"name": "PET_NNODES", "value": value}]})
        if let_in:
            await stage.create(TRAIN_JOBS, trainjob)
            assert "PET_NNODES is set for you" in " ".join(stage.cluster.client.warnings)
        else:
            with pytest.raises(StatusError, match="must not have reserved envs"):
                await stage.create(TRAIN_JOBS, trainjob)

    play(test)


def test_older_shapes_and_ignored_trainers_are_warned_about() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime(jobs=[make_job("node")]))
        spec = {**override("node", nodeSelector={"a": "b"}), "trainer": {"image": "x:1"}}
        await stage.create(TRAIN_JOBS, make_trainjob(**spec))
        said = " ".join(stage.cluster.client.warnings)
        assert "use spec.runtimePatches" in said
        assert "spec.trainer of this TrainJob has no effect" in said
        await stage.play()
        assert stage.notes == ["NotAsAsked"]
        assert stage.container()["image"] == "node:1"

    play(test)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(override("node", nodeSelector={"a": "b"}, schedulingGates=[{"name": "x/y"}]), id="2.1"),
        pytest.param(flat("node", nodeSelector={"a": "b"}, schedulingGates=[{"name": "x/y"}]), id="2.0"),
        pytest.param(patch("node", nodeSelector={"a": "b"}, schedulingGates=[{"name": "x/y"}]), id="2.2"),
    ],
)
def test_the_three_shapes_mean_the_same(spec: Object) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(TORCH), make_trainjob(**spec))
        assert (stage.pod()["nodeSelector"], stage.pod()["schedulingGates"]) == ({"a": "b"}, [{"name": "x/y"}])
        assert "nodeSelector" not in stage.pod("model-initializer")

    play(test)


async def refuse_change(stage: Stage, spec: Object) -> str:
    with pytest.raises(StatusError) as caught:
        await stage.patch(TRAIN_JOBS, {"spec": spec})
    return caught.value.message


def test_overrides_change_only_while_suspended_and_only_as_far_as_they_can_reach() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(TORCH), make_trainjob(suspend=True, trainer={}))
        said = await refuse_change(stage, patch("node", volumes=[{"name": "v", "emptyDir": {}}]))
        assert "changed: node.Pods.volumes" in said
        assert "node.Pods.affinity" in await refuse_change(stage, patch("node", affinity={"nodeAffinity": {}}))
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False, **patch("node", nodeSelector={"a": "b"})}})
        await stage.play()
        assert stage.pod()["nodeSelector"] == {"a": "b"}
        said = await refuse_change(stage, patch("node", nodeSelector={"a": "c"}))
        assert "RuntimePatches can only be modified when the TrainJob is suspended before or after" in said
        await stage.report({"node": {"active": 1}}, None)
        said = await refuse_change(stage, {"suspend": True, **patch("node", nodeSelector={"a": "c"})})
        assert "RuntimePatches cannot be modified when the JobSet's ReplicatedJob node is still active" in said

    play(test)


async def delete_runtime(stage: Stage) -> None:
    """Although it is in use, which takes an annotation."""
    allow = {"metadata": {"annotations": {ALLOW_DELETE_IN_USE: "true"}}}
    await stage.cluster.client.patch(TRAINING_RUNTIMES, "alpha", PatchType.MERGE, allow, "default")
    await stage.cluster.client.delete(TRAINING_RUNTIMES, "alpha", "default")


def test_a_job_can_be_suspended_and_labelled_when_its_runtime_is_gone() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(TORCH), make_trainjob())
        await delete_runtime(stage)
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": True, "labels": {"a": "b"}}})
        await stage.play()
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.play()
        assert stage.jobset["spec"]["suspend"] is False
        assert stage.jobset["metadata"]["labels"] == {"a": "b"}

    play(test)


def read_waiting(world: World) -> Object:
    waiting = world.get(TRAIN_JOBS, "a-torch")["status"]["waiting"]
    assert isinstance(waiting, dict)
    return waiting


@pytest.mark.parametrize(
    ("gvr", "name"),
    [(CONFIG_MAPS, "a-torch-mpi-hostfile"), (CONFIG_MAPS, "a-torch-runtime-snapshot"), (JOB_SETS, "a-torch")],
)
def test_an_object_of_somebody_else_is_never_touched(gvr: GVR, name: str) -> None:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_plain_runtime(policy={"mpi": {}}))
    world.add(TRAIN_JOBS, make_plain_trainjob())
    theirs = world.add(gvr, {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "data": {}})
    controller = build_controller(FrameworkContext(on_cluster=True))
    world.run(controller, "a-torch")
    assert world.get(gvr, name) == theirs
    assert read_waiting(world)["reason"] in ("NameConflict", "InvalidRuntimeSnapshot")
    plan = world.run(controller, "a-torch")
    assert (plan.all_writes, plan.notes, plan.requeue_after) == ((), (), None)


def test_without_our_admission_the_controller_says_what_is_wrong() -> None:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_plain_runtime())
    world.add(TRAIN_JOBS, make_plain_trainjob(**override("nobody", nodeSelector={"a": "b"})))
    plan = world.run(build_controller(FrameworkContext(on_cluster=True)), "a-torch")
    waiting = read_waiting(world)
    assert (waiting["reason"], "the runtime has node" in waiting["message"]) == ("Invalid", True)
    assert [note.reason for note in plan.notes] == ["TrainJobResourcesCreationFailed"]
    assert world.find(JOB_SETS, "default", "a-torch") is None


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param({}, 'missing "runtime" data key', id="no key"),
        pytest.param({"runtime": "a: [b"}, "unable to unmarshal the snapshot", id="broken"),
        pytest.param({"runtime": "- 1"}, "unable to unmarshal the snapshot", id="no object"),
        pytest.param({"runtime": "kind: Other\nspec: {}\n"}, "refers to the wrong runtime", id="another runtime"),
    ],
)
def test_a_snapshot_that_cannot_be_used_is_said_with_what_to_do(data: Object, want: str) -> None:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_plain_runtime())
    trainjob = world.add(TRAIN_JOBS, make_plain_trainjob())
    owner = {"kind": "TrainJob", "name": "a-torch", "uid": trainjob["metadata"]["uid"], "controller": True}
    metadata = {"name": "a-torch-runtime-snapshot", "namespace": "default", "ownerReferences": [owner]}
    world.add(CONFIG_MAPS, {"metadata": metadata, "data": data})
    world.run(build_controller(), "a-torch")
    message = read_waiting(world)["message"]
    assert message.startswith("invalid runtime snapshot: ")
    assert want in message
    assert "delete the ConfigMap a-torch-runtime-snapshot to take a new one" in message


def test_a_refused_resumption_leaves_the_condition_true() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(TORCH), make_trainjob(suspend=True))
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.cluster.client.delete(CONFIG_MAPS, "alpha-runtime-snapshot", "default")
        await delete_runtime(stage)
        await stage.play()
        assert stage.conditions == [("Suspended", "True", "Suspended")]
        assert stage.get(TRAIN_JOBS)["status"]["waiting"]["reason"] == "RuntimeNotFound"

    play(test)


def test_a_gang_scheduler_that_is_not_installed_is_said() -> None:
    world = World()
    runtime = make_plain_runtime()
    runtime["spec"]["podGroupPolicy"] = {"volcano": {}}
    world.add(CLUSTER_TRAINING_RUNTIMES, runtime)
    world.add(TRAIN_JOBS, make_plain_trainjob())
    controller = build_controller(FrameworkContext(on_cluster=True))
    request = Request("default", "a-torch")
    write = controller.reconcile(world, request, Now(NOW), ()).writes[1]
    assert isinstance(write, Create) and write.gvr == VOLCANO_POD_GROUPS
    refusal = WriteRefusal(write, unknown_path())
    assert not is_passing(refusal)
    world.carry_out(controller.reconcile(world, request, Now(NOW), (refusal,)).all_writes)
    assert "PodGroups of scheduling.volcano.sh are not served here" in read_waiting(world)["message"]
