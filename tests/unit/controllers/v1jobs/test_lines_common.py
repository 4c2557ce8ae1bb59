"""The lines C of the conformance checklist for training-operator that the recorded cases do not show."""

from __future__ import annotations

import pytest

from tests.unit.controllers.v1jobs.stage import V1Stage
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, SERVICES
from trainmaster.api.v1jobs.frameworks import (
    FRAMEWORKS,
    JAX,
    MPI,
    MULTIKUEUE,
    MXNET,
    PADDLE,
    PYTORCH,
    TENSORFLOW,
    XGBOOST,
    V1Framework,
)
from trainmaster.controllers.explain.reasons import explain
from trainmaster.jobs.models.v1jobs import MODELS
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

LABELS = "training.kubeflow.org/"
SHAPES: dict[V1Framework, dict[str, int]] = {
    PYTORCH: {"Master": 1, "Worker": 2},
    TENSORFLOW: {"PS": 1, "Worker": 2},
    MPI: {"Launcher": 1, "Worker": 2},
    XGBOOST: {"Master": 1, "Worker": 2},
    PADDLE: {"Master": 1, "Worker": 2},
    JAX: {"Worker": 3},
    MXNET: {"Scheduler": 1, "Server": 1, "Worker": 1},
}
EVERY_KIND = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.kind)


@pytest.mark.parametrize(
    ("policy", "written"),
    [("ExitCode", "Never"), ("Never", "Never"), ("Always", "Always"), ("OnFailure", "OnFailure")],
)
def test_c01_the_restart_policy_of_pods(policy: str, written: str) -> None:
    stage = V1Stage(PYTORCH, {"Master": 1}, policy)
    stage.play()
    assert stage.get_pod("a-master-0")["spec"]["restartPolicy"] == written


@pytest.mark.parametrize("code", [1, 2, 3, 127])
def test_c02_an_exit_code_below_128_is_permanent(code: int) -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, "ExitCode")
    stage.start()
    stage.set_phase("a-worker-0", "Failed", code)
    stage.play()
    assert stage.conditions[-1] == ("Failed", "True")
    assert stage.pods == ["a-worker-0", "a-worker-1"]


@pytest.mark.parametrize("code", [128, 130, 138])
def test_c02_an_exit_code_from_128_is_retried(code: int) -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, "ExitCode")
    stage.start()
    before = stage.get_pod("a-worker-0")["metadata"]["uid"]
    stage.set_phase("a-worker-0", "Failed", code)
    stage.play()
    assert any(note.startswith("PyTorchJobRestarting: ") for note in stage.notes)
    assert stage.status["restarts"] == 1
    assert stage.get_pod("a-worker-0")["metadata"]["uid"] != before


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_c05_a_suspended_job_has_no_pods_and_services_under_any_policy(policy: str) -> None:
    stage = V1Stage(PYTORCH, {"Master": 1, "Worker": 1}, runPolicy={"cleanPodPolicy": policy})
    stage.start()
    stage.change(runPolicy={"suspend": True})
    stage.play()
    assert (stage.pods, stage.services) == ([], [])


@pytest.mark.parametrize(
    ("policy", "left"), [("None", ["a-worker-0", "a-worker-1"]), ("Running", ["a-worker-0"]), ("All", [])]
)
def test_c06_after_a_limit_the_policy_decides_which_pods_remain(policy: str, left: list[str]) -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, runPolicy={"cleanPodPolicy": policy, "backoffLimit": 0})
    stage.start()
    stage.set_phase("a-worker-0", "Failed", 1)
    stage.play()
    assert stage.conditions[-1] == ("Failed", "True")
    assert (stage.pods, stage.services) == (left, left)


@pytest.mark.parametrize(
    ("limit", "restarts", "fails"), [(3, (1, 2), True), (3, (1, 1), False), (0, (0, 0), False), (0, (1, 0), True)]
)
def test_c07_restarts_in_place_count_against_the_limit(limit: int, restarts: tuple[int, int], fails: bool) -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, runPolicy={"backoffLimit": limit})
    stage.start()
    for index, number in enumerate(restarts):
        stage.set_phase(f"a-worker-{index}", "Running", restarts=number)
    stage.play()
    assert (stage.conditions[-1] == ("Failed", "True")) is fails


def test_c08_four_workers_that_restart_once_reach_a_limit_of_four() -> None:
    stage = V1Stage(TENSORFLOW, {"Worker": 4}, runPolicy={"backoffLimit": 4, "cleanPodPolicy": "All"})
    stage.start()
    for name in stage.pods:
        stage.set_phase(name, "Running", restarts=1)
    stage.play()
    assert stage.conditions[-1] == ("Failed", "True")
    assert (stage.pods, stage.services) == ([], [])


@pytest.mark.parametrize(("deadline", "fails"), [(None, False), (2, True), (0, True)])
def test_c09_the_deadline(deadline: int | None, fails: bool) -> None:
    limit = {} if deadline is None else {"activeDeadlineSeconds": deadline}
    stage = V1Stage(TENSORFLOW, {"Worker": 2}, runPolicy={"cleanPodPolicy": "All", **limit})
    if deadline == 0:
        stage.play()
        assert stage.conditions[-1] == ("Failed", "True"), "at once"
        return
    stage.start()
    if fails:
        assert stage.step().requeue_after == deadline
    stage.wait(deadline or 86_400)
    assert stage.conditions[-1][0] == ("Failed" if fails else "Running")
    assert bool(stage.pods) is not fails


@EVERY_KIND
def test_c09_a_deadline_is_the_reason_even_if_a_replica_failed_before(framework: V1Framework) -> None:
    stage = V1Stage(framework, SHAPES[framework], "ExitCode", runPolicy={"activeDeadlineSeconds": 60})
    stage.start()
    stage.set_phase(stage.pods[0], "Failed", 130)
    stage.play()
    assert stage.status["failure"]["exitCode"] == 130
    stage.wait(60)
    assert stage.status["conditions"][-1]["reason"] == f"{framework.kind}Failed"
    model = next(model for model in MODELS if model.framework is framework)
    late = "DeadlineExceeded: Job a has failed because it was active longer than specified deadline"
    assert model(stage.job).state.sentence == late
    found = explain(stage.world, "default", "a", Now(stage.now))
    assert found is not None
    assert found.sentence == "failed 0s ago (DeadlineExceeded): " + late.partition(": ")[2]
    assert found.unblock[0] == "raise activeDeadlineSeconds and submit it again"


def test_c10_a_running_pod_that_is_deleted_counts_as_failed() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2})
    stage.start()
    stage.world.merge(PODS, "a-worker-0", {"metadata": {"deletionTimestamp": "2026-11-15T12:00:00Z"}})
    stage.play()
    counts = stage.status["replicaStatuses"]["Worker"]
    assert (counts["active"], counts["failed"]) == (1, 1)
    assert stage.conditions[-1] == ("Restarting", "True")


@pytest.mark.parametrize("count", [1, 4])
def test_c11_c12_scaling_creates_what_is_missing_and_deletes_what_is_beyond(count: int) -> None:
    stage = V1Stage(TENSORFLOW, {"PS": 1, "Worker": 3})
    stage.start()
    stage.change(tfReplicaSpecs={"Worker": {"replicas": count}})
    stage.play()
    names = ["a-ps-0", *(f"a-worker-{index}" for index in range(count))]
    assert (stage.pods, stage.services) == (names, names)


def test_c13_names_have_the_type_in_lower_case() -> None:
    stage = V1Stage(MXNET, {"Scheduler": 1, "TunerTracker": 1})
    stage.play()
    assert stage.pods == stage.services == ["a-scheduler-0", "a-tunertracker-0"]


def test_c20_running_and_restarting_replace_each_other_and_failed_comes_last() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 1}, "ExitCode")
    stage.start()
    assert stage.conditions == [("Created", "True"), ("Running", "True")]
    stage.set_phase("a-worker-0", "Failed", 137)
    stage.play()
    assert stage.conditions == [("Created", "True"), ("Restarting", "True")]
    stage.set_phase("a-worker-0", "Running")
    stage.play()
    assert stage.conditions == [("Created", "True"), ("Running", "True")]
    before = stage.status["conditions"][1]
    stage.set_phase("a-worker-0", "Failed", 1)
    stage.play()
    assert stage.conditions == [("Created", "True"), ("Running", "False"), ("Failed", "True")]
    assert stage.status["conditions"][1] == {**before, "status": "False"}


@EVERY_KIND
def test_c21_a_job_created_suspended_has_nothing(framework: V1Framework) -> None:
    stage = V1Stage(framework, SHAPES[framework], runPolicy={"suspend": True})
    stage.play()
    assert (stage.pods, stage.services) == ([], [])
    assert "startTime" not in stage.status
    assert stage.conditions == [("Created", "True"), ("Suspended", "True")]


@EVERY_KIND
def test_c22_c23_suspending_deletes_and_resuming_creates_again(framework: V1Framework) -> None:
    stage = V1Stage(framework, SHAPES[framework])
    stage.start()
    names, started = stage.pods, stage.status["startTime"]
    assert names
    stage.change(runPolicy={"suspend": True})
    stage.wait(10)
    stage.wait(10)
    assert (stage.pods, stage.services) == ([], [])
    assert not any("active" in entry for entry in stage.status["replicaStatuses"].values())
    assert stage.status["startTime"] == started
    assert stage.conditions == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    stage.change(runPolicy={"suspend": False})
    stage.start()
    assert stage.pods == names
    assert stage.conditions == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
    assert [entry["reason"] for entry in stage.status["conditions"]][1] == f"{framework.kind}Resumed"
    assert stage.status["startTime"] != started


@EVERY_KIND
def test_c24_a_job_of_multikueue_is_left_alone(framework: V1Framework) -> None:
    stage = V1Stage(framework, SHAPES[framework], runPolicy={"managedBy": MULTIKUEUE, "suspend": True})
    stage.play()
    stage.change(runPolicy={"suspend": False})
    stage.play()
    assert (stage.pods, stage.services, stage.status) == ([], [], {})


@pytest.mark.parametrize(
    ("manager", "ours"), [(None, True), ("kubeflow.org/training-operator", True), ("", False), ("other", False)]
)
def test_c25_who_manages_a_job(manager: str | None, ours: bool) -> None:
    policy = {} if manager is None else {"managedBy": manager}
    stage = V1Stage(PYTORCH, {"Master": 1}, runPolicy=policy)
    stage.play()
    assert bool(stage.pods) is ours


def test_c31_orphans_are_adopted_unless_they_are_terminating_or_have_another_owner() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 3})
    stage.play()
    owned = stage.get_pod("a-worker-0")["metadata"]
    labels = owned["labels"]
    terminating = {"deletionTimestamp": "2026-11-15T12:00:00Z"}
    extras: list[Object] = [{}, terminating, {"ownerReferences": [{"uid": "x", "controller": True}]}]
    for index, extra in enumerate(extras):
        name = f"a-worker-{index}"
        own = {**labels, f"{LABELS}replica-index": str(index)}
        meta = {"name": name, "namespace": "default", "labels": own, "ownerReferences": [], "uid": name, **extra}
        stage.world.add(PODS, {"metadata": meta, "spec": {}, "status": {"phase": "Running"}})
    stage.step()
    assert stage.get_pod("a-worker-0")["metadata"]["ownerReferences"] == owned["ownerReferences"]
    assert stage.get_pod("a-worker-1")["metadata"]["ownerReferences"] == []
    assert stage.get_pod("a-worker-2")["metadata"]["ownerReferences"] == [{"uid": "x", "controller": True}]


@EVERY_KIND
def test_c40_c41_c43_services_are_headless_and_everything_has_labels_and_an_owner(framework: V1Framework) -> None:
    stage = V1Stage(framework, SHAPES[framework])
    stage.play()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": framework.kind, "name": "a", "uid": stage.job["metadata"]["uid"]}
    for obj in (*stage.world.list(PODS), *stage.world.list(SERVICES)):
        meta = obj["metadata"]
        assert meta["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": True}]
        assert meta["labels"][f"{LABELS}operator-name"] == f"{framework.kind.lower()}-controller"
        assert meta["labels"][f"{LABELS}job-name"] == "a"
    assert bool(stage.services) is (framework is not MPI)
    for service in stage.world.list(SERVICES):
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["ports"] == [{"name": framework.port_name, "port": framework.port}]
        assert service["spec"]["selector"] == service["metadata"]["labels"]
        pod = stage.get_pod(service["metadata"]["name"])
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_c42_labels_and_annotations_of_the_template_are_copied() -> None:
    stage = V1Stage(TENSORFLOW, {"Worker": 1})
    meta = {"labels": {"team": "x", f"{LABELS}job-name": "b"}, "annotations": {"note": "y"}}
    stage.change(tfReplicaSpecs={"Worker": {"template": {"metadata": meta}}})
    stage.play()
    made = stage.get_pod("a-worker-0")["metadata"]
    assert made["annotations"] == {"note": "y"}
    assert (made["labels"]["team"], made["labels"][f"{LABELS}job-name"]) == ("x", "a")


def test_a_job_that_runs_with_the_pods_it_needs_is_not_waiting() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 1}}
    stage = V1Stage(PYTORCH, {"Worker": 2}, runPolicy=policy)
    stage.play()
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    for name in stage.pods:
        stage.world.merge(PODS, name, {"status": {"phase": "Pending", "conditions": [unplaced]}})
    stage.play()
    assert stage.status["waiting"]["message"] == "Pod a-worker-0: no room; the same for 1 other Pod"
    stage.world.merge(PODS, "a-worker-0", {"spec": {"nodeName": "local"}, "status": {"conditions": []}})
    stage.set_phase("a-worker-0", "Running")
    stage.play()
    assert "waiting" not in stage.status
    assert stage.conditions[-1] == ("Running", "True")
