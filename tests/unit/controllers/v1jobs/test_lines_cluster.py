"""What v1 jobs have on a cluster only: PodGroups for two gang schedulers, and the autoscaler of a PyTorchJob."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.cases import load_case
from tests.unit.controllers.v1jobs.stage import V1Stage
from tests.unit.controllers.world import NOW, World
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    COSCHEDULING_POD_GROUPS,
    HORIZONTAL_POD_AUTOSCALERS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.v1jobs.frameworks import BY_KIND, JAX, MPI, PYTORCH, TENSORFLOW, V1Framework
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.controllers.v1jobs.reconciler import build_controller
from trainmaster.jobs.models.v1jobs import MODELS

pytestmark = pytest.mark.unit

PLAIN, PLUGINS, VOLCANO = V1Cluster(), V1Cluster("plugins"), V1Cluster("Volcano")
SHAPE = {"Master": 1, "Worker": 2}
GANGS = {"default-scheduler": COSCHEDULING_POD_GROUPS, "volcano": VOLCANO_POD_GROUPS}
METRICS = [{"type": "Pods", "pods": {"metric": {"name": "n"}, "target": {"type": "Value", "averageValue": "1000m"}}}]


def admit(stage: V1Stage) -> None:
    stage.world.merge(VOLCANO_POD_GROUPS, "a", {"status": {"phase": "Inqueue"}})
    stage.play()


def get_group(stage: V1Stage, gvr: GVR = COSCHEDULING_POD_GROUPS) -> Object:
    return stage.world.get(gvr, "a")


@pytest.mark.parametrize(
    ("case", "scheduler"),
    [
        ("gang-pt-coscheduling", "default-scheduler"),
        ("gang-pt-policy-coscheduling", "default-scheduler"),
        ("gang-mpi-coscheduling", "default-scheduler"),
        ("gang-pt-volcano", "volcano"),
        ("gang-pt-policy-volcano", "volcano"),
        ("pt-elastic-hpa", ""),
    ],
)
def test_objects_are_those_that_upstream_was_recorded_with(case: str, scheduler: str) -> None:
    recorded = load_case(f"1.8/{case}")
    (manifest,) = recorded["manifest"]
    world, gvr = World(), BY_KIND[manifest["kind"]].gvr
    world.add(gvr, manifest)
    model = next(model for model in MODELS if model.gvr == gvr)
    controller = build_controller(model, V1Cluster(scheduler))
    groups = GANGS.get(scheduler)
    for _ in range(6):
        world.run(controller, case, NOW)
        if groups == VOLCANO_POD_GROUPS:
            world.merge(groups, case, {"status": {"phase": "Inqueue"}})
    for kind in (PODS, *([groups] if groups else [HORIZONTAL_POD_AUTOSCALERS])):
        ours = {obj["metadata"]["name"]: describe(obj) for obj in world.list(kind)}
        assert ours == {
            obj["metadata"]["name"]: describe(obj)
            for obj in recorded["captures"]["running"]
            if obj["kind"] == world.list(kind)[0]["kind"]
        }


def describe(obj: Object) -> Object:
    """What decides where and when a Pod runs, or the whole spec of another object."""
    meta, spec = obj["metadata"], obj["spec"]
    found = {"labels": meta.get("labels") or {}, "annotations": meta.get("annotations") or {}}
    if obj["kind"] == "Pod":
        return {**found, "schedulerName": spec.get("schedulerName", "default-scheduler")}
    return {**found, "spec": spec}


def test_a_pod_group_exists_before_the_pods_and_ends_with_the_job() -> None:
    stage = V1Stage(PYTORCH, SHAPE, cluster=PLUGINS)
    plan = stage.step()
    assert [write.gvr for write in plan.writes][:2] == [COSCHEDULING_POD_GROUPS, PODS]
    assert get_group(stage)["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
    for name in stage.pods:
        stage.set_phase(name, "Succeeded", 0)
    stage.step()
    assert stage.conditions[-1] == ("Succeeded", "True")
    assert get_group(stage), "the outcome is stored in a pass of its own"
    stage.play()
    assert not stage.world.list(COSCHEDULING_POD_GROUPS) and len(stage.pods) == 3
    assert stage.notes[-2:] == [
        "JobTerminated: Job has been terminated. Deleting PodGroup",
        "SuccessfulDeletePodGroup: Deleted PodGroup: a",
    ]


def test_a_suspended_job_has_no_pod_group_and_a_scaled_one_a_larger() -> None:
    stage = V1Stage(PYTORCH, SHAPE, cluster=PLUGINS)
    stage.start()
    stage.change(pytorchReplicaSpecs={"Worker": {"replicas": 5}})
    stage.play()
    assert get_group(stage)["spec"]["minMember"] == 6
    stage.change(runPolicy={"suspend": True})
    stage.play()
    assert not stage.world.list(COSCHEDULING_POD_GROUPS)
    stage.change(runPolicy={"suspend": False})
    stage.play()
    assert get_group(stage)["spec"]["minMember"] == 6 and len(stage.pods) == 6


def test_volcano_admits_the_pod_group_before_there_are_pods() -> None:
    policy = {"schedulingPolicy": {"queue": "research", "priorityClass": "high"}, "activeDeadlineSeconds": 60}
    stage = V1Stage(TENSORFLOW, {"PS": 1, "Worker": 2}, cluster=VOLCANO, runPolicy=policy)
    stage.play()
    assert get_group(stage, VOLCANO_POD_GROUPS)["spec"] == {
        "minMember": 3,
        "queue": "research",
        "priorityClassName": "high",
    }
    assert stage.pods == stage.services == [] and "startTime" not in stage.status
    assert stage.status["waiting"]["reason"] == "Queued" and '"research"' in stage.status["waiting"]["message"]
    stage.wait(3600)
    assert stage.conditions == [("Created", "True")], "time in the queue does not count against the deadline"
    stage.world.merge(VOLCANO_POD_GROUPS, "a", {"status": {"phase": "Pending"}})
    stage.play()
    assert stage.pods == []
    admit(stage)
    assert len(stage.pods) == len(stage.services) == 3 and "waiting" not in stage.status
    assert {stage.get_pod(name)["spec"]["schedulerName"] for name in stage.pods} == {"volcano"}


def test_a_job_that_runs_is_followed_although_its_pod_group_is_pending() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, cluster=VOLCANO)
    stage.play()
    admit(stage)
    stage.world.merge(VOLCANO_POD_GROUPS, "a", {"status": {"phase": "Pending"}})
    for name in stage.pods:
        stage.set_phase(name, "Running")
    stage.play()
    assert stage.conditions[-1] == ("Running", "True") and "waiting" not in stage.status
    stage.set_phase("a-worker-0", "Failed", 1)
    stage.play()
    assert stage.pods == ["a-worker-1"] and stage.status["waiting"]["reason"] == "Queued"
    admit(stage)
    assert stage.pods == ["a-worker-0", "a-worker-1"]


def test_a_pod_group_follows_the_policy_and_stays_in_its_queue() -> None:
    policy: Object = {"minAvailable": 2, "queue": "first", "minResources": {"cpu": 1.5, "memory": "1Gi"}}
    stage = V1Stage(PYTORCH, SHAPE, cluster=VOLCANO, runPolicy={"schedulingPolicy": policy})
    stage.play()
    found = {"minMember": 2, "queue": "first", "minResources": {"cpu": "1500m", "memory": "1Gi"}}
    assert get_group(stage, VOLCANO_POD_GROUPS)["spec"] == found
    changed = {"minAvailable": 3, "queue": "second", "minResources": {"cpu": 2, "memory": None}}
    stage.change(runPolicy={"schedulingPolicy": changed})
    stage.play()
    found = {"minMember": 3, "queue": "first", "minResources": {"cpu": "2"}}
    assert get_group(stage, VOLCANO_POD_GROUPS)["spec"] == found


def request(stage: V1Stage, kind: str, priority: str, **resources: Any) -> None:
    containers = [{"name": "pytorch", "image": "i", "resources": resources}, {"name": "x", "image": "i"}]
    template = {"spec": {"priorityClassName": priority, "containers": containers}}
    stage.change(pytorchReplicaSpecs={kind: {"template": template}})


@pytest.mark.parametrize(("priority", "amount"), [("", "3500m"), ("high", "6")])
def test_the_resources_of_a_gang_are_those_of_its_most_important_pods(priority: str, amount: str) -> None:
    stage = V1Stage(PYTORCH, SHAPE, cluster=PLUGINS, runPolicy={"schedulingPolicy": {"minAvailable": 2}})
    stage.world.add(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    request(stage, "Master", "", requests={"cpu": "500m"}, limits={"cpu": 9})
    request(stage, "Worker", priority, limits={"cpu": 3, "example.com/x": "no number"})
    stage.play()
    assert get_group(stage)["spec"]["minResources"] == {"cpu": amount}


def test_a_pod_group_of_another_job_is_not_touched() -> None:
    stage = V1Stage(PYTORCH, SHAPE, cluster=PLUGINS)
    owner = {"kind": "TFJob", "name": "a", "uid": "other", "controller": True}
    meta = {"name": "a", "namespace": "default", "ownerReferences": [owner]}
    stage.world.add(COSCHEDULING_POD_GROUPS, {"kind": "PodGroup", "metadata": meta, "spec": {"minMember": 9}})
    stage.play()
    assert stage.pods == [] and get_group(stage)["spec"] == {"minMember": 9}
    assert stage.status["waiting"]["message"] == 'podgroups "a" already exists; it belongs to the TFJob a'
    stage.change(runPolicy={"suspend": True})
    stage.play()
    assert get_group(stage)


def test_annotations_of_the_job_reach_its_pod_group() -> None:
    stage = V1Stage(PYTORCH, SHAPE, cluster=PLUGINS)
    own = {"example.com/a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    stage.world.merge(PYTORCH.gvr, "a", {"metadata": {"annotations": own}})
    stage.play()
    assert get_group(stage)["metadata"]["annotations"] == {"example.com/a": "1"}


@pytest.mark.parametrize(
    ("framework", "reason"),
    [(TENSORFLOW, "SetPodTemplateSchedulerName"), (MPI, "SettedPodTemplateSchedulerName")],
)
def test_c30_a_scheduler_in_the_template_stays_and_is_warned_about(framework: Any, reason: str) -> None:
    stage = V1Stage(framework, {"Launcher" if framework is MPI else "Chief": 1, "Worker": 1}, cluster=PLUGINS)
    stage.change(**{framework.replicas_field: {"Worker": {"template": {"spec": {"schedulerName": "mine"}}}}})
    stage.play()
    names = {pod["metadata"]["name"]: pod["spec"]["schedulerName"] for pod in stage.world.list(PODS)}
    assert set(names.values()) == {"plugins", "mine"} and names["a-worker-0"] == "mine"
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    assert stage.notes.count(f"{reason}: {text}") == 1


def test_mistakes_that_no_webhook_refused_are_reported_by_the_job() -> None:
    stage = V1Stage(PYTORCH, {"Master": 2, "Worker": 1}, cluster=PLAIN)
    stage.play()
    text = "PyTorchJob failed validation because spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"
    assert stage.pods == [] and stage.notes == [f"PyTorchJobFailedValidation: {text}"]
    assert (stage.status["waiting"]["reason"], stage.status["waiting"]["message"]) == ("FailedValidation", text)
    stage.change(pytorchReplicaSpecs={"Master": {"replicas": 1}})
    stage.play()
    assert stage.pods == ["a-master-0", "a-worker-0"] and "waiting" not in stage.status


def make_elastic(cluster: V1Cluster | None = PLAIN) -> V1Stage:
    policy = {"minReplicas": 1, "maxReplicas": 4, "metrics": METRICS}
    return V1Stage(PYTORCH, {"Worker": 2}, cluster=cluster, elasticPolicy=policy)


def list_autoscalers(stage: V1Stage) -> list[Object]:
    return [one["spec"] for one in stage.world.list(HORIZONTAL_POD_AUTOSCALERS)]


def test_p06_metrics_make_an_autoscaler_that_a_suspension_deletes() -> None:
    stage = make_elastic()
    stage.play()
    (spec,) = list_autoscalers(stage)
    assert (spec["minReplicas"], spec["maxReplicas"], spec["metrics"]) == (1, 4, METRICS)
    assert spec["scaleTargetRef"] == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a"}
    stage.change(elasticPolicy={"maxReplicas": 6})
    stage.play()
    assert list_autoscalers(stage)[0]["maxReplicas"] == 6
    stage.change(runPolicy={"suspend": True})
    stage.play()
    assert list_autoscalers(stage) == []
    stage.change(runPolicy={"suspend": False})
    stage.play()
    assert len(list_autoscalers(stage)) == 1
    stage.change(elasticPolicy={"metrics": None})
    stage.play()
    assert list_autoscalers(stage) == []


def test_an_autoscaler_that_the_server_has_completed_is_left_alone() -> None:
    stage = make_elastic()
    stage.play()
    target = {"type": "Value", "averageValue": "1"}
    stored = [{"type": "Pods", "pods": {"metric": {"name": "n"}, "target": target}}]
    stage.world.merge(HORIZONTAL_POD_AUTOSCALERS, "a", {"spec": {"metrics": stored, "behavior": {}}})
    assert not stage.step().all_writes


def test_without_a_cluster_there_is_neither() -> None:
    stage = make_elastic(None)
    stage.play()
    assert {gvr for gvr, _, _ in stage.world.objects} == {PYTORCH.gvr, PODS, SERVICES}


@pytest.mark.parametrize(("framework", "pods"), [(PYTORCH, 2**31 - 1), (JAX, 10_001), (TENSORFLOW, 2_001)])
def test_a_job_that_does_not_fit_into_memory_waits_with_its_reason(framework: V1Framework, pods: int) -> None:
    """On a cluster, nothing refuses it."""
    stage = V1Stage(framework, {"Worker": pods}, cluster=PLAIN)
    stage.play()
    assert stage.pods == []
    assert stage.status["waiting"]["reason"] == "FailedValidation"
    assert f"it has {pods} Pods" in stage.status["waiting"]["message"]


def test_what_kubelets_say_about_pods_is_said_by_the_job() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, cluster=PLAIN)
    stage.play()
    missing = {"waiting": {"reason": "ErrImageNeverPull", "message": "is not present"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "pytorch", "state": missing}]}
    stage.world.merge(PODS, "a-worker-1", {"status": status})
    stage.play()
    waiting = stage.status["waiting"]
    want = ("ErrImageNeverPull", "Pod a-worker-1: container pytorch: is not present")
    assert (waiting["reason"], waiting["message"]) == want
    stage.set_phase("a-worker-1", "Running")
    stage.world.merge(PODS, "a-worker-1", {"status": {"containerStatuses": []}})
    stage.play()
    assert "waiting" not in stage.status


def test_pods_keep_what_they_printed_last() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 1}, cluster=V1Cluster(logs_as_messages=True))
    stage.play()
    [pod] = stage.world.list(PODS)
    policies = {container["terminationMessagePolicy"] for container in pod["spec"]["containers"]}
    assert policies == {"FallbackToLogsOnError"}
