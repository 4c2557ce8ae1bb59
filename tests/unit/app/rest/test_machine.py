"""What the REST API shows of nodes (what is taken, whose GPUs are whose, what runs there) and of the queue."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.devices import Device, render_devices, render_lease
from trainmaster.api.labels import DEVICES, JOBSET_UID, MIRROR, REPLICATED_JOB_NAME
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.app.rest.machine import build_nodes, build_queue
from trainmaster.client.listed import ListedView
from trainmaster.rest.models.machine import NodeDetail, Queue

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"
DEVICES_OF_NODE = [
    Device(0, "GPU-a", "NVIDIA H200", 143_771),
    Device(1, "GPU-b"),
    Device(2, "GPU-c", held="used by process 7 (python)"),
    Device(3, "GPU-d", unhealthy="XID 79: it has fallen off the bus"),
]


def make_node(name: str = "local", gpus: int = 4, devices: list[Device] | None = None) -> Object:
    resources = {"cpu": "16", "memory": "64Gi", "pods": "100", GPU: str(gpus)}
    notes = {} if devices is None else {DEVICES: render_devices(devices)}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-15T08:00:00Z"}]
    return {
        "metadata": {"name": name, "annotations": notes, "creationTimestamp": "2026-11-15T08:00:00Z"},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


def make_pod(
    name: str, *, node: str = "local", job: str = "", leased: list[Device] | None = None, gpus: int = 0
) -> Object:
    requests = {"cpu": "500m", **({GPU: str(gpus)} if gpus else {})}
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
    }
    labels = {JOBSET_UID: f"{job}-jobset", REPLICATED_JOB_NAME: "node"} if job else {}
    notes = {DEVICES: render_lease(spec, leased)} if leased else {}
    meta = {"name": name, "namespace": "ann", "uid": name, "labels": labels, "annotations": notes}
    meta["creationTimestamp"] = "2026-11-15T09:00:00Z"
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def make_jobset(job: str) -> Object:
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": job, "uid": f"{job}-uid"}
    meta: dict[str, Any] = {"name": job, "namespace": "ann", "uid": f"{job}-jobset"}
    meta["ownerReferences"] = [{**owner, "controller": True}]
    meta["creationTimestamp"] = "2026-11-15T09:00:00Z"
    return {"metadata": meta, "spec": {"replicatedJobs": []}, "status": {}}


def read(nodes: list[Object], view: ListedView | None) -> list[NodeDetail]:
    return [NodeDetail(**node) for node in build_nodes(nodes, view)]


def test_each_gpu_says_who_has_it_or_why_nobody_may() -> None:
    pods = [make_pod("mnist-0", job="mnist", leased=DEVICES_OF_NODE[:1], gpus=1)]
    view = ListedView({PODS: pods, JOB_SETS: [make_jobset("mnist")]})
    (node,) = read([make_node(devices=DEVICES_OF_NODE)], view)
    assert [(one.state, one.job, one.reason) for one in node.gpus] == [
        ("leased", "ann/mnist", None),
        ("free", None, None),
        ("held", None, "used by process 7 (python)"),
        ("unhealthy", None, "XID 79: it has fallen off the bus"),
    ]


def test_what_runs_on_a_node_is_summed_by_job() -> None:
    pods = [
        make_pod("mnist-0", job="mnist", leased=DEVICES_OF_NODE[:1], gpus=1),
        make_pod("mnist-1", job="mnist"),
        make_pod("alone"),
        make_pod("elsewhere", node="other"),
    ]
    view = ListedView({PODS: pods, JOB_SETS: [make_jobset("mnist")]})
    (node,) = read([make_node(devices=DEVICES_OF_NODE)], view)
    assert node.jobs is not None
    assert [(one.name, one.kind, one.uid, one.pods, one.requests) for one in node.jobs] == [
        ("alone", None, None, 1, {"cpu": 0.5, "pods": 1.0}),
        ("mnist", "TrainJob", "mnist-uid", 2, {"cpu": 1.0, GPU: 1.0, "pods": 2.0}),
    ]
    taken = {one.name: one.taken for one in node.resources}
    assert (taken["cpu"], taken[GPU], taken["pods"]) == (1.5, 1.0, 3.0)


def test_pods_that_mirror_the_control_plane_are_no_load_of_jobs() -> None:
    mirrors = [make_pod("scheduler"), make_pod("etcd")]
    for mirror in mirrors:
        mirror["metadata"]["annotations"] = {MIRROR: "1"}
    mirrors[0]["spec"]["containers"] = [{"name": "main"}]
    (node,) = read([make_node()], ListedView({PODS: [make_pod("alone"), *mirrors]}))
    taken = {one.name: one.taken for one in node.resources}
    # A static Pod of a cluster takes what it requests.
    assert (taken["cpu"], taken["pods"]) == (1.0, 2.0)
    assert node.jobs is not None and [job.name for job in node.jobs] == ["alone"]


def test_a_cluster_that_only_counts_gpus_shows_how_many_each_job_has() -> None:
    pods = [
        make_pod("first", gpus=2),
        make_pod("second", node="other", gpus=1),
        make_pod("idle"),
    ]
    nodes = [make_node(gpus=4), make_node("other", gpus=2)]
    local, other = read(nodes, ListedView({PODS: pods}))
    assert [one.job for one in local.gpus] == ["ann/first", "ann/first", None, None]
    assert [(one.state, one.job) for one in other.gpus] == [("leased", "ann/second"), ("free", None)]


def test_nothing_is_claimed_about_pods_that_the_caller_may_not_list() -> None:
    (node,) = read([make_node(devices=DEVICES_OF_NODE)], None)
    assert [one.state for one in node.gpus] == ["unknown", "unknown", "held", "unhealthy"]
    assert node.jobs is None and {one.taken for one in node.resources} == {None}


NO_NODE = "0/1 nodes are available: 1 Insufficient cpu."


def make_job(name: str, **status: Any) -> Object:
    meta = {"name": name, "namespace": "ann", "uid": f"{name}-uid", "creationTimestamp": "2026-11-15T09:00:00Z"}
    return {"metadata": meta, "spec": {"runtimeRef": {"name": "plain"}}, "status": status}


def make_unscheduled(job: str) -> Object:
    pod = make_pod(f"{job}-node-0-0", node="")
    pod["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": job}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_NODE}
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    return pod


def test_a_job_that_says_nothing_waits_for_what_the_scheduler_says_of_its_pods() -> None:
    """As with upstream's Trainer, which has no `status.waiting`."""
    told = {"reason": "Queued", "message": "it waits for its turn", "since": "2026-11-15T09:01:00Z"}
    ended = {"conditions": [{"type": "Failed", "status": "True", "reason": "FailedJobs"}]}
    jobs = [make_job("large"), make_job("told", waiting=told), make_job("runs"), make_job("over", **ended)]
    pods = [make_unscheduled("large"), make_unscheduled("told"), make_unscheduled("over"), make_pod("runs-node-0-0")]
    queue = build_queue(ListedView({TRAIN_JOBS: jobs, PODS: pods}), "ann", is_whole=False)
    told_first, large = Queue(**queue).items
    assert (told_first.name, told_first.sentence) == ("told", "it waits for its turn")
    assert (large.name, large.kind, large.uid, large.reason) == ("large", "TrainJob", "large-uid", "Unschedulable")
    assert large.sentence == f"Pod large-node-0-0: {NO_NODE}"
    assert (large.requests, large.since, large.position) == ({"cpu": 0.5, "pods": 1}, "2026-11-15T09:00:00Z", None)
