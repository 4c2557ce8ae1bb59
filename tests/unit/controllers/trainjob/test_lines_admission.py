"""Conformance lines W-001 to W-067: what is let in, what is refused, what is filled in.

Upstream's webhooks answer 403, its schema 422. Lines where ours differs on purpose say so: W-020 (no nodes), W-025 and
W-026 (an update of a TrainingRuntime is validated here, so the runtime has to opt out of it).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.trainjob.stage import (
    Stage,
    make_full_trainjob,
    make_job,
    make_jobs,
    make_patch,
    make_runtime,
    make_trainjob,
    play,
)
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit

TORCH = {"numNodes": 1, "torch": {}}
MPI = {"numNodes": 1, "mpi": {}}
OPT_OUT = {"trainer.kubeflow.org/webhook-validation": "disabled"}


async def refuse(stage: Stage, obj: Object, runtime: Object | None = None) -> StatusError:
    if runtime is not None:
        await stage.create_runtime(runtime)
    create = stage.create_runtime(obj) if obj["kind"].endswith("Runtime") else stage.create(TRAIN_JOBS, obj)
    with pytest.raises(StatusError) as caught:
        await create
    return caught.value


@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param(make_runtime(kind="ClusterTrainingRuntime"), id="W-001"),
        pytest.param(make_runtime(), id="W-002"),
        pytest.param(make_runtime({"numNodes": 1}), id="W-003"),
    ],
)
def test_a_plain_runtime_is_let_in(runtime: Object) -> None:
    async def test(stage: Stage) -> None:
        assert (await stage.create_runtime(runtime))["metadata"]["uid"]

    play(test)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param({"mpi": {}, "torch": {}}, "Only one of the policy can be configured", id="W-004"),
        pytest.param({"jax": {}, "torch": {}}, "Only one of the policy can be configured", id="W-005"),
        pytest.param({"torch": {}, "flux": {}}, "Only one of the policy can be configured", id="W-006"),
        pytest.param({"mpi": {}, "flux": {}}, "Only one of the policy can be configured", id="W-007"),
        pytest.param({"jax": {}, "flux": {}}, "Only one of the policy can be configured", id="W-008"),
        pytest.param({"jax": {}, "mpi": {}}, "Only one of the policy can be configured", id="W-009"),
        pytest.param({"torch": {}, "mpi": {}, "jax": {}, "flux": {}}, "Only one of the policy", id="W-010"),
        pytest.param({"mpi": {"mpiImplementation": "invalid"}}, "mpiImplementation: Unsupported value", id="W-011"),
        pytest.param({"mpi": {"numProcPerNode": 0}}, "NumProcPerNode in mpiPolicy must be >= 1", id="W-012"),
    ],
)
def test_an_invalid_policy(policy: Object, want: str) -> None:
    async def test(stage: Stage) -> None:
        error = await refuse(stage, make_runtime(policy))
        assert (error.code, want in error.message) == (422, True), error.message

    play(test)


@pytest.mark.parametrize(
    ("field", "want"),
    [
        pytest.param("mpiImplementation", "OpenMPI", id="W-013"),
        pytest.param("sshAuthMountPath", "/root/.ssh", id="W-014"),
        pytest.param("runLauncherAsNode", False, id="W-015"),
        pytest.param("numProcPerNode", 1, id="W-016"),
    ],
)
def test_a_default_of_the_mpi_policy(field: str, want: Any) -> None:
    async def test(stage: Stage) -> None:
        runtime = await stage.create_runtime(make_runtime(MPI))
        assert runtime["spec"]["mlPolicy"]["mpi"][field] == want

    play(test)


CLUSTER = "ClusterTrainingRuntime"
WITHOUT_CONTAINER = make_jobs()
LONGEST = 1048576


def trained(**trainer: Any) -> Object:
    return make_trainjob(trainer=trainer)


def dataset(uri: str) -> Object:
    return make_trainjob(initializer={"dataset": {"storageUri": uri}})


def model(uri: str) -> Object:
    return make_trainjob(initializer={"model": {"storageUri": uri}})


@pytest.mark.parametrize(
    ("runtime", "trainjob"),
    [
        pytest.param(make_runtime(), make_trainjob(), id="W-017"),
        pytest.param(make_runtime(), trained(numNodes=1, numProcPerNode=1), id="W-023"),
        pytest.param(make_runtime(kind=CLUSTER), make_trainjob(kind=CLUSTER), id="W-024"),
        pytest.param(
            make_runtime(kind=CLUSTER),
            make_trainjob(kind=CLUSTER, initializer={"dataset": {"storageUri": "hf://a/b"}}),
            id="W-027",
        ),
        pytest.param(make_runtime(TORCH), trained(numProcPerNode=4), id="W-028"),
        pytest.param(make_runtime(), dataset(""), id="W-033"),
        pytest.param(make_runtime(), dataset("s3://bucket/path"), id="W-035"),
        pytest.param(make_runtime(), model("gs://bucket/model"), id="W-037"),
        pytest.param(make_runtime(), trained(command=["x" * LONGEST]), id="W-038"),
        pytest.param(make_runtime(), trained(args=["x" * LONGEST]), id="W-040"),
        pytest.param(make_runtime(), make_trainjob(name="valid-job-name"), id="W-042"),
        pytest.param(
            make_runtime(jobs=[make_job("n", label="trainer")], policy={"numNodes": 1}),
            make_trainjob(name="a" * 51),
            id="W-043 the longest name that its Pods allow",
        ),
        pytest.param(make_runtime(), make_trainjob(managedBy="trainer.kubeflow.org/trainjob-controller"), id="W-048"),
        pytest.param(make_runtime(), make_trainjob(managedBy="kueue.x-k8s.io/multikueue"), id="W-049"),
        pytest.param(
            make_runtime(), make_trainjob(runtimePatches=[make_patch("a.io/x"), make_patch("b.io/y")]), id="W-051"
        ),
        pytest.param(make_runtime(), make_trainjob(runtimePatches=[make_patch("kueue.k8s.io/manager")]), id="W-052"),
        pytest.param(
            make_runtime(),
            make_trainjob(runtimePatches=[make_patch(pod={"spec": {"terminationGracePeriodSeconds": 300}})]),
            id="W-054",
        ),
        pytest.param(
            make_runtime(),
            make_trainjob(runtimePatches=[make_patch(pod={"spec": {"terminationGracePeriodSeconds": 0}})]),
            id="W-056",
        ),
    ],
)
def test_let_in(runtime: Object, trainjob: Object) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(runtime)
        assert (await stage.create(TRAIN_JOBS, trainjob))["metadata"]["uid"]

    play(test)


@pytest.mark.parametrize(
    ("code", "runtime", "trainjob", "want"),
    [
        pytest.param(403, None, make_trainjob(), "must be created before the TrainJob is created", id="W-018"),
        pytest.param(422, make_runtime(), trained(numNodes=-1), "greater than or equal to", id="W-019"),
        pytest.param(
            422, make_runtime(), trained(numNodes=0), "greater than or equal to 1", id="W-020 refused on purpose"
        ),
        pytest.param(422, make_runtime(), trained(numProcPerNode=-5), "greater than or equal to 1", id="W-021"),
        pytest.param(422, make_runtime(), trained(numProcPerNode=0), "greater than or equal to 1", id="W-022"),
        pytest.param(
            403,
            make_runtime(TORCH),
            trained(env=[{"name": "PET_NODE_RANK", "value": "1"}]),
            "must not have reserved envs, invalid envs configured: [PET_NODE_RANK]",
            id="W-029",
        ),
        pytest.param(
            422, make_runtime({"numNodes": 1, "flux": {}}), trained(numProcPerNode=0), "equal to 1", id="W-030"
        ),
        pytest.param(
            403,
            make_runtime(
                {"numNodes": 1, "flux": {}},
                jobs=make_jobs(node={"initContainers": [{"name": "flux-installer", "image": "i"}]}),
            ),
            make_trainjob(),
            "InitContainer 'flux-installer' is reserved",
            id="W-031",
        ),
        pytest.param(422, make_runtime(), dataset("invalid-uri"), "it must be a valid URI", id="W-032"),
        pytest.param(422, make_runtime(), dataset("s3://"), "it must be a valid URI", id="W-034"),
        pytest.param(422, make_runtime(), model("invalid-uri"), "it must be a valid URI", id="W-036"),
        pytest.param(422, make_runtime(), trained(command=["x" * (LONGEST + 1)]), "Too long", id="W-039"),
        pytest.param(422, make_runtime(), trained(args=["x" * (LONGEST + 1)]), "Too long", id="W-041"),
        pytest.param(422, make_runtime(), make_trainjob(name="Upper"), "RFC 1035 DNS label format", id="W-044"),
        pytest.param(422, make_runtime(), make_trainjob(name="1st"), "RFC 1035 DNS label format", id="W-045"),
        pytest.param(422, make_runtime(), make_trainjob(name="end-"), "RFC 1035 DNS label format", id="W-046"),
        pytest.param(422, make_runtime(), make_trainjob(name="a" * 64), "no more than 63 characters", id="W-047"),
        pytest.param(422, make_runtime(), make_trainjob(managedBy="invalid"), "ManagedBy must be", id="W-050"),
        pytest.param(
            403,
            make_runtime(),
            make_trainjob(runtimePatches=[make_patch("kueue.k8s.io/")]),
            'must be a domain-prefixed path (such as "acme.io/foo")',
            id="W-053",
        ),
        pytest.param(
            422,
            make_runtime(),
            make_trainjob(runtimePatches=[make_patch(pod={"spec": {"terminationGracePeriodSeconds": -1}})]),
            "terminationGracePeriodSeconds",
            id="W-055",
        ),
    ],
)
def test_refused(code: int, runtime: Object | None, trainjob: Object, want: str) -> None:
    async def test(stage: Stage) -> None:
        error = await refuse(stage, trainjob, runtime)
        assert (error.code, want in error.message) == (code, True), error.message

    play(test)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        pytest.param("model", "model-initializer", id="W-025"),
        pytest.param("dataset", "dataset-initializer", id="W-026"),
    ],
)
def test_an_initializer_whose_job_lacks_its_container(field: str, name: str) -> None:
    async def test(stage: Stage) -> None:
        jobs = make_jobs()
        broken = next(job for job in jobs if job["name"] == name)
        broken["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "other"
        runtime = make_runtime(jobs=jobs)
        error = await refuse(stage, runtime)
        assert f"must contain the required container for the ancestor: {name}" in error.message
        runtime["metadata"]["labels"] = OPT_OUT
        trainjob = make_trainjob(initializer={field: {"storageUri": "hf://a/b"}})
        error = await refuse(stage, trainjob, runtime)
        assert error.code == 403
        assert f"must have container with name - {name} in the {name} job" in error.message

    play(test)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param(("suspend",), False, id="W-057"),
        pytest.param(("managedBy",), "trainer.kubeflow.org/trainjob-controller", id="W-058"),
        pytest.param(("runtimeRef", "apiGroup"), "trainer.kubeflow.org", id="W-059"),
        pytest.param(("runtimeRef", "kind"), CLUSTER, id="W-060"),
    ],
)
def test_a_default_of_the_trainjob(path: tuple[str, ...], want: Any) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime(kind=CLUSTER))
        trainjob = make_trainjob()
        trainjob["spec"]["runtimeRef"] = {"name": "alpha"}
        value = (await stage.create(TRAIN_JOBS, trainjob))["spec"]
        for step in path:
            value = value[step]
        assert value == want

    play(test)


def test_w_061_both_patches_get_their_time_at_creation() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime())
        patches = [make_patch("a.io/x"), make_patch("b.io/y")]
        made = await stage.create(TRAIN_JOBS, make_trainjob(runtimePatches=patches))
        times = [patch["time"] for patch in made["spec"]["runtimePatches"]]
        assert times == [made["metadata"]["creationTimestamp"]] * 2

    play(test)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, id="W-062"),
        pytest.param({"runtimeRef": {"name": "other"}}, id="W-063"),
        pytest.param({"initializer": {"dataset": {"storageUri": "hf://other/x"}}}, id="W-064"),
        pytest.param({"trainer": {"image": "other:1"}}, id="W-065"),
        pytest.param({"trainer": None}, id="the trainer cannot be removed either"),
    ],
)
def test_what_cannot_change(patch: Object) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime())
        await stage.create(TRAIN_JOBS, make_full_trainjob())
        with pytest.raises(StatusError) as caught:
            await stage.patch(TRAIN_JOBS, {"spec": patch})
        assert (caught.value.code, "field is immutable" in caught.value.message) == (422, True)

    play(test)


def patched(**pod: Any) -> Object:
    return {"spec": {"runtimePatches": [make_patch(pod={"spec": pod})]}}


def test_w_066_a_node_selector_may_change_while_suspended() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime())
        await stage.create(TRAIN_JOBS, make_full_trainjob(**patched(nodeSelector={"a": "b"})["spec"]))
        changed = await stage.patch(TRAIN_JOBS, patched(nodeSelector={"a": "c"}))
        patches = changed["spec"]["runtimePatches"]
        pod = patches[0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        assert pod["template"]["spec"]["nodeSelector"] == {"a": "c"}

    play(test)


def test_w_067_a_grace_period_may_not_change() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime())
        await stage.create(TRAIN_JOBS, make_full_trainjob(**patched(terminationGracePeriodSeconds=300)["spec"]))
        with pytest.raises(StatusError) as caught:
            await stage.patch(TRAIN_JOBS, patched(terminationGracePeriodSeconds=600))
        assert (caught.value.code, "field is immutable" in caught.value.message) == (422, True)

    play(test)


def test_an_update_of_a_namespaced_runtime_is_validated_too() -> None:
    async def test(stage: Stage) -> None:
        runtime = await stage.create_runtime(make_runtime())
        runtime["spec"]["template"]["spec"]["replicatedJobs"][2]["replicas"] = 2
        with pytest.raises(StatusError) as caught:
            await stage.cluster.client.update(TRAINING_RUNTIMES, runtime, "default")
        assert caught.value.message == (
            'admission webhook "validator.trainingruntime.trainer.kubeflow.org" denied the request: '
            "spec.template.spec.replicatedJobs[2].replicas: Invalid value: 2: always must be 1"
        )

    play(test)
