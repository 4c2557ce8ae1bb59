"""TrainJob: the JobSet it becomes, the status it gets, and what it says when it cannot run."""

from __future__ import annotations

import orjson
import pytest
import yaml

from tests.unit.controllers.world import NOW, World, make_runtime, make_trainjob
from trainmaster.api.labels import FROM_TRAINJOB, WAITING
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, JOB_SETS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.writes import Create, WriteRefusal
from trainmaster.controllers.trainjob.reconciler import CONTROLLER, map_runtime
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

TRAINER = {
    "image": "train:1",
    "command": ["torchrun", "train.py"],
    "args": ["--epochs", "3"],
    "numNodes": 2,
    "env": [{"name": "LOG_LEVEL", "value": "INFO"}],
}


def make_world(**trainjob: object) -> World:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime())
    world.add(TRAIN_JOBS, make_trainjob(**trainjob))  # type: ignore[arg-type]  # keyword arguments pass through
    return world


def test_a_torch_job_becomes_the_jobset_that_upstream_makes() -> None:
    world = make_world(trainer=TRAINER)
    world.run(CONTROLLER, "a-torch")
    jobset = world.get(JOB_SETS, "a-torch")
    rank = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    want_container = {
        "args": ["--epochs", "3"],
        "command": ["torchrun", "train.py"],
        "env": [
            {"name": "LOG_LEVEL", "value": "INFO"},
            {"name": "PET_NNODES", "value": "2"},
            {"name": "PET_NPROC_PER_NODE", "value": "1"},
            {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": rank}}},
            {"name": "PET_MASTER_ADDR", "value": "a-torch-node-0-0.a-torch"},
            {"name": "PET_MASTER_PORT", "value": "29500"},
        ],
        "image": "train:1",
        "name": "node",
        "ports": [{"containerPort": 29500, "protocol": "TCP"}],
        "resources": {},
    }
    job = jobset["spec"]["replicatedJobs"][0]
    assert job["template"]["spec"]["template"]["spec"]["containers"] == [want_container]
    assert (job["template"]["spec"]["parallelism"], job["template"]["spec"]["completions"]) == (2, 2)
    assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert jobset["spec"]["suspend"] is False
    assert jobset["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "blockOwnerDeletion": True,
            "controller": True,
            "kind": "TrainJob",
            "name": "a-torch",
            "uid": world.get(TRAIN_JOBS, "a-torch")["metadata"]["uid"],
        }
    ]


def test_the_runtime_is_kept_as_a_snapshot_and_used_from_then_on() -> None:
    world = make_world(trainer=TRAINER)
    world.run(CONTROLLER, "a-torch")
    snapshot = yaml.safe_load(world.get(CONFIG_MAPS, "a-torch-runtime-snapshot")["data"]["runtime"])
    assert snapshot["metadata"]["name"] == "torch-distributed"
    del world.objects[CLUSTER_TRAINING_RUNTIMES, "", "torch-distributed"]
    del world.objects[JOB_SETS, "default", "a-torch"]
    world.run(CONTROLLER, "a-torch")
    assert world.find(JOB_SETS, "default", "a-torch") is not None


def test_a_second_pass_writes_nothing() -> None:
    world = make_world(trainer=TRAINER)
    world.run(CONTROLLER, "a-torch")
    assert world.run(CONTROLLER, "a-torch").all_writes == ()


@pytest.mark.parametrize(
    ("asked", "resources", "want"),
    [
        pytest.param(None, {}, "1", id="no resources: one process"),
        pytest.param(None, {"requests": {"cpu": "2500m"}}, "3", id="CPUs are rounded up"),
        pytest.param(None, {"limits": {"nvidia.com/gpu": "8"}}, "auto", id="with GPUs torchrun counts itself"),
        pytest.param(4, {"limits": {"nvidia.com/gpu": "8"}}, "4", id="a number stays"),
        pytest.param("cpu", {"limits": {"cpu": 2, "nvidia.com/gpu": 1}}, "2", id="cpu means the CPUs"),
        pytest.param("gpu", {}, "gpu", id="gpu is torchrun's to decide"),
    ],
)
def test_processes_per_node(asked: object, resources: dict[str, object], want: str) -> None:
    trainer: dict[str, object] = {"resourcesPerNode": resources}
    if asked is not None:
        trainer["numProcPerNode"] = asked
    world = make_world(trainer=trainer)
    world.run(CONTROLLER, "a-torch")
    pod = world.get(JOB_SETS, "a-torch")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert env["PET_NPROC_PER_NODE"] == want


def test_a_plain_runtime_adds_no_variables() -> None:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime(name="plain", nodes=3, policy={}))
    world.add(TRAIN_JOBS, make_trainjob(runtime="plain"))
    world.run(CONTROLLER, "a-torch")
    job = world.get(JOB_SETS, "a-torch")["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["completions"] == 3
    assert "env" not in job["template"]["spec"]["containers"][0]


def test_resources_are_merged_key_by_key_over_the_runtimes() -> None:
    runtime = make_runtime()
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 4, "memory": "1Gi"}}
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, runtime)
    world.add(TRAIN_JOBS, make_trainjob(trainer={"resourcesPerNode": {"limits": {"memory": "2Gi"}}}))
    world.run(CONTROLLER, "a-torch")
    pod = world.get(JOB_SETS, "a-torch")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "4", "memory": "2Gi"}}


def test_a_missing_runtime_is_said_once_and_its_arrival_wakes_the_job() -> None:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime(name="other"))
    world.add(TRAIN_JOBS, make_trainjob())
    plan = world.run(CONTROLLER, "a-torch")
    waiting = world.get(TRAIN_JOBS, "a-torch")["status"]["waiting"]
    assert waiting["reason"] == "RuntimeNotFound"
    assert 'ClusterTrainingRuntime "torch-distributed" does not exist' in waiting["message"]
    assert "other" in waiting["message"]
    assert [note.reason for note in plan.notes] == ["TrainJobResourcesCreationFailed"]
    again = world.run(CONTROLLER, "a-torch")
    assert (again.all_writes, again.notes) == ((), ())
    runtime = world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime())
    assert list(map_runtime(world, runtime)) == [Request("default", "a-torch")]
    world.run(CONTROLLER, "a-torch")
    assert "waiting" not in world.get(TRAIN_JOBS, "a-torch")["status"]
    assert world.find(JOB_SETS, "default", "a-torch") is not None


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"trainer": {"resourcesPerNode": {"claims": [{"name": "x"}]}}}, "claims", id="nested"),
    ],
)
def test_what_is_not_carried_out_is_refused_by_name(spec: dict[str, object], want: str) -> None:
    world = make_world(**spec)
    world.run(CONTROLLER, "a-torch")
    waiting = world.get(TRAIN_JOBS, "a-torch")["status"]["waiting"]
    assert waiting["reason"] == "Unsupported"
    assert want in waiting["message"]
    assert world.find(JOB_SETS, "default", "a-torch") is None


def test_an_unsupported_policy_of_the_runtime_is_refused_by_name() -> None:
    world = World()
    world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime(policy={"flux": {"numProcPerNode": 1}}))
    world.add(TRAIN_JOBS, make_trainjob())
    world.run(CONTROLLER, "a-torch")
    assert "mlPolicy.flux of the runtime" in world.get(TRAIN_JOBS, "a-torch")["status"]["waiting"]["message"]


def test_a_foreign_jobset_of_the_same_name_is_left_alone_and_said() -> None:
    world = make_world(trainer=TRAINER)
    world.add(JOB_SETS, {"metadata": {"name": "a-torch", "namespace": "default"}, "spec": {}})
    plan = world.run(CONTROLLER, "a-torch")
    assert plan.writes == ()
    assert world.get(TRAIN_JOBS, "a-torch")["status"]["waiting"]["reason"] == "NameConflict"


def test_a_job_that_only_waited_is_never_left_with_an_empty_status() -> None:
    """Found by the simulation: the schema refuses an empty status, so the plan that starts the job was refused."""
    world = make_world(trainer=TRAINER)
    world.add(JOB_SETS, {"metadata": {"name": "a-torch", "namespace": "default"}, "spec": {}})
    world.run(CONTROLLER, "a-torch")
    assert "waiting" in world.get(TRAIN_JOBS, "a-torch")["status"]
    del world.objects[JOB_SETS, "default", "a-torch"]
    plan = world.run(CONTROLLER, "a-torch")
    assert plan.status is not None
    assert world.get(TRAIN_JOBS, "a-torch").get("status", "none") != {}


def test_a_new_reason_for_waiting_keeps_nothing_of_the_last_one() -> None:
    world = make_world()
    world.run(CONTROLLER, "a-torch")
    pause = {"reason": "RestartBackOff", "message": "m", "since": "s", "until": "u"}
    queued = {"reason": "Queued", "message": "m", "since": "s"}
    for reason in (pause, queued):
        mark = {WAITING: orjson.dumps(reason).decode()}
        world.merge(JOB_SETS, "a-torch", {"metadata": {"annotations": mark}})
        world.run(CONTROLLER, "a-torch")
        assert world.get(TRAIN_JOBS, "a-torch")["status"]["waiting"] == reason
        assert not world.run(CONTROLLER, "a-torch").all_writes


def test_a_refusal_becomes_the_reason_for_waiting_and_nothing_else() -> None:
    world = make_world(trainer=TRAINER)
    create = Create(JOB_SETS, {"metadata": {"name": "a-torch"}})
    refusal = WriteRefusal(create, StatusError(422, "Invalid", "JobSet name is too long"))
    plan = CONTROLLER.reconcile(world, Request("default", "a-torch"), Now(NOW), (refusal,))
    assert plan.writes == ()
    assert plan.status is not None
    assert plan.status.patch["status"]["waiting"]["message"] == "JobSet name is too long"


def test_the_jobsets_end_becomes_the_trainjobs_and_is_never_taken_back() -> None:
    world = make_world(trainer=TRAINER)
    world.run(CONTROLLER, "a-torch")
    text = "jobset failed due to reaching max number of restarts (first failed job: a-torch-node-0)"
    failed = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": text}
    counts = {"name": "node", "ready": 0, "succeeded": 0, "failed": 1, "active": 0, "suspended": 0}
    status = {
        "conditions": [{**failed, "lastTransitionTime": "2026-11-15T12:00:00Z"}],
        "replicatedJobsStatus": [counts],
    }
    world.merge(JOB_SETS, "a-torch", {"status": status})
    world.run(CONTROLLER, "a-torch")
    trainjob = world.get(TRAIN_JOBS, "a-torch")
    assert trainjob["status"]["conditions"] == [{**failed, "lastTransitionTime": "2026-11-15T12:00:00Z"}]
    assert trainjob["status"]["jobsStatus"] == [counts]
    del world.objects[JOB_SETS, "default", "a-torch"]
    assert world.run(CONTROLLER, "a-torch").all_writes == ()


def test_suspend_and_resume_reach_the_jobset_and_the_conditions() -> None:
    world = make_world(trainer=TRAINER, suspend=True)
    world.run(CONTROLLER, "a-torch")
    assert world.get(JOB_SETS, "a-torch")["spec"]["suspend"] is True
    condition = world.get(TRAIN_JOBS, "a-torch")["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Suspended", "True", "Suspended")
    world.merge(TRAIN_JOBS, "a-torch", {"spec": {"suspend": False}})
    world.run(CONTROLLER, "a-torch")
    assert world.get(JOB_SETS, "a-torch")["spec"]["suspend"] is False
    condition = world.get(TRAIN_JOBS, "a-torch")["status"]["conditions"][0]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "Resumed",
        "TrainJob is resumed",
    )


def test_a_job_under_deletion_or_managed_by_another_is_left_alone() -> None:
    world = make_world(trainer=TRAINER, managedBy="kueue.x-k8s.io/multikueue")
    assert world.run(CONTROLLER, "a-torch").all_writes == ()
    world = make_world(trainer=TRAINER)
    world.merge(TRAIN_JOBS, "a-torch", {"metadata": {"deletionTimestamp": "2026-11-15T12:00:00Z"}})
    assert world.run(CONTROLLER, "a-torch").all_writes == ()


def test_a_label_that_is_taken_out_of_the_trainjob_goes_and_those_of_others_stay() -> None:
    world = make_world(labels={"a": "1", "b": "2"}, annotations={"c": "3"})
    world.run(CONTROLLER, "a-torch")
    world.merge(JOB_SETS, "a-torch", {"metadata": {"labels": {"queue": "theirs"}}})
    spec = world.get(TRAIN_JOBS, "a-torch")["spec"]
    world.add(
        TRAIN_JOBS, {**world.get(TRAIN_JOBS, "a-torch"), "spec": {**spec, "labels": {"b": "3"}, "annotations": {}}}
    )
    world.run(CONTROLLER, "a-torch")
    meta = world.get(JOB_SETS, "a-torch")["metadata"]
    assert meta["labels"] == {"b": "3", "queue": "theirs"}
    assert meta["annotations"] == {FROM_TRAINJOB: '{"labels":["b"]}'}
    world.add(TRAIN_JOBS, {**world.get(TRAIN_JOBS, "a-torch"), "spec": {**spec, "labels": {}, "annotations": {}}})
    world.run(CONTROLLER, "a-torch")
    meta = world.get(JOB_SETS, "a-torch")["metadata"]
    assert (meta["labels"], meta.get("annotations")) == ({"queue": "theirs"}, {})
    assert world.run(CONTROLLER, "a-torch").all_writes == ()


@pytest.mark.parametrize("text", ["no json", "[]", '{"labels": 3}', '{"labels": [3]}'])
def test_a_spoilt_list_of_labels_is_set_right_and_removes_nothing(text: str) -> None:
    world = make_world(labels={"a": "1"})
    world.run(CONTROLLER, "a-torch")
    world.merge(JOB_SETS, "a-torch", {"metadata": {"annotations": {FROM_TRAINJOB: text}, "labels": {"x": "y"}}})
    world.run(CONTROLLER, "a-torch")
    meta = world.get(JOB_SETS, "a-torch")["metadata"]
    assert meta["labels"] == {"a": "1", "x": "y"}
    assert meta["annotations"] == {FROM_TRAINJOB: '{"labels":["a"]}'}
