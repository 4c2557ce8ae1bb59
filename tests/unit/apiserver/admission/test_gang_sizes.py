"""A TrainJob that could never fit its tenant's quota is refused; one that only has to wait is accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.controllers.trainjob.stage import make_jobs, make_runtime, make_trainjob
from tests.unit.controllers.v1jobs.stage import make_v1_job
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    PODS,
    RESOURCE_QUOTAS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import Allowance
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.client.contract import PatchType
from trainmaster.controllers import install
from trainmaster.tenancy.tenants import TenantRegister
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

SMALL = Allowance(cpu="2", memory="4Gi", gpus=1)


def play(allowance: Allowance, scene: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await TenantRegister(cluster.client, cluster.clock).add("ann", allowance, walled=True)
            await install.install_runtimes(cluster.client)
            await scene(cluster)

    run_virtual(main())


async def create(cluster: Cluster, runtime: str = "plain", **spec: Any) -> Object:
    job = make_trainjob(kind="ClusterTrainingRuntime", runtime=runtime, **spec)
    job["metadata"]["namespace"] = "ann"
    return await cluster.client.create(TRAIN_JOBS, job, "ann")


def train(nodes: int, **amounts: str) -> Object:
    names = {"gpu": "nvidia.com/gpu"}
    limits = {names.get(name, name): amount for name, amount in amounts.items()}
    return {"numNodes": nodes, "resourcesPerNode": {"requests": limits, "limits": limits}}


@pytest.mark.parametrize(
    ("trainer", "want"),
    [
        (train(4, cpu="1", memory="1Gi"), "it needs 4 CPUs, and the tenant may have 2 CPUs at a time"),
        (train(1, cpu="2001m", memory="1Gi"), "it needs 2001m CPUs, and the tenant may have 2 CPUs at a time"),
        (train(2, cpu="1", memory="3Gi"), "it needs 6Gi of memory, and the tenant may have 4Gi of memory at a time"),
        (train(2, cpu="1", memory="1Gi", gpu="1"), "it needs 2 GPUs, and the tenant may have 1 GPU at a time"),
        (
            train(8, cpu="1", memory="1Gi"),
            "it needs 8 CPUs and 8Gi of memory, and the tenant may have 2 CPUs and 4Gi of memory at a time",
        ),
        ({"numNodes": 3}, "it needs 3 CPUs, and the tenant may have 2 CPUs at a time"),
    ],
    ids=["CPUs", "one node", "memory", "GPUs", "both", "defaults of the LimitRange"],
)
def test_more_than_the_tenant_may_ever_have(trainer: Object, want: str) -> None:
    async def scene(cluster: Cluster) -> None:
        with pytest.raises(StatusError) as refused:
            await create(cluster, trainer=trainer)
        assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
        assert f"{want}, so it could never start; an administrator can raise it: `trainmaster tenant set ann --" in (
            refused.value.message
        )
        assert {cause["field"] for cause in refused.value.causes} == {"spec.trainer.resourcesPerNode"}

    play(SMALL, scene)


@pytest.mark.parametrize(
    ("allowance", "spec"),
    [
        (SMALL, {"trainer": train(2, cpu="1", memory="2Gi")}),
        (SMALL, {"trainer": {"numNodes": 2}}),
        (Allowance(), {"trainer": train(100, cpu="64", memory="1Ti")}),
        (SMALL, {"trainer": train(9, cpu="9", memory="9Gi"), "managedBy": "kueue.x-k8s.io/multikueue"}),
        # The launcher is one of the nodes; whether it runs beside all the others is not certain.
        (SMALL, {"runtime": "deepspeed-distributed", "trainer": train(3, cpu="1", memory="1Gi")}),
    ],
    ids=["all that there is", "defaults of the LimitRange", "no such limit", "another cluster", "MPI"],
)
def test_what_may_fit_is_accepted(allowance: Allowance, spec: Object) -> None:
    async def scene(cluster: Cluster) -> None:
        assert (await create(cluster, **spec))["metadata"]["uid"]

    play(allowance, scene)


def test_current_usage_does_not_count() -> None:
    async def scene(cluster: Cluster) -> None:
        container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
        await cluster.client.create(PODS, pod, "ann")
        assert (await create(cluster, trainer=train(2, cpu="1", memory="1Gi")))["metadata"]["uid"]

    play(SMALL, scene)


def test_a_job_can_be_suspended_after_its_quota_was_lowered() -> None:
    async def scene(cluster: Cluster) -> None:
        await create(cluster, trainer=train(2, cpu="1", memory="1Gi"))
        lower = {"spec": {"hard": {"requests.cpu": "1", "limits.cpu": "1"}}}
        await cluster.client.patch(RESOURCE_QUOTAS, "tenant", PatchType.MERGE, lower, "ann")
        await cluster.client.patch(TRAIN_JOBS, "alpha", PatchType.MERGE, {"spec": {"suspend": True}}, "ann")

    play(SMALL, scene)


def test_jobs_that_run_one_after_the_other_are_not_added_up() -> None:
    async def scene(cluster: Cluster) -> None:
        jobs = make_jobs()
        for earlier, job in pairwise(jobs):
            job["dependsOn"] = [{"name": earlier["name"], "status": "Complete"}]
        runtime = make_runtime({"numNodes": 1}, jobs=jobs, kind="ClusterTrainingRuntime", name="steps")
        await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, runtime)
        await create(cluster, "steps", trainer=train(2, cpu="1", memory="2Gi"))

    play(SMALL, scene)


def test_jobs_that_start_together_are_added_up() -> None:
    async def scene(cluster: Cluster) -> None:
        runtime = make_runtime({"numNodes": 1}, jobs=make_jobs(), kind="ClusterTrainingRuntime", name="beside")
        await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, runtime)
        with pytest.raises(StatusError, match="it needs 3 CPUs and 12Gi of memory, and the tenant may have 2 CPUs"):
            await create(cluster, "beside")

    play(SMALL, scene)


def test_what_the_runtime_requests_counts() -> None:
    async def scene(cluster: Cluster) -> None:
        jobs = make_jobs()
        jobs[2]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
        runtime = make_runtime({"numNodes": 1}, jobs=jobs[2:])
        runtime["metadata"]["namespace"] = "ann"
        await cluster.client.create(TRAINING_RUNTIMES, runtime, "ann")
        job = make_trainjob()
        job["metadata"]["namespace"] = "ann"
        with pytest.raises(StatusError, match="it needs 3 CPUs, and the tenant may have 2 CPUs"):
            await cluster.client.create(TRAIN_JOBS, job, "ann")

    play(SMALL, scene)


@pytest.mark.parametrize(
    ("gvr", "build"),
    [
        (
            TRAIN_JOBS,
            lambda pods: make_trainjob(kind="ClusterTrainingRuntime", runtime="plain", trainer={"numNodes": pods}),
        ),
        (TRAINING_RUNTIMES, lambda pods: make_runtime({"numNodes": pods})),
        (JOB_SETS, lambda pods: make_job_set(pods)),
        (PYTORCH.gvr, lambda pods: make_v1_job(PYTORCH, {"Worker": pods})),
    ],
    ids=["TrainJob", "runtime", "JobSet", "PyTorchJob"],
)
def test_nobody_submits_a_job_that_does_not_fit_into_memory(gvr: GVR, build: Callable[[int], Object]) -> None:
    async def scene(cluster: Cluster) -> None:
        for pods in (10_001, 2**31 - 1):
            with pytest.raises(StatusError, match=r"it has \d{5,} Pods, and a job of this kind may have at most 10000"):
                await cluster.client.create(gvr, build(pods), "default")

    play(SMALL, scene)


def test_a_job_that_was_let_in_before_can_still_be_changed_and_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(cluster: Cluster) -> None:
        await cluster.client.create(JOB_SETS, make_job_set(3), "default")
        monkeypatch.setattr("trainmaster.api.training.counts.find_excess.__defaults__", (2,))
        patch: Object = {"metadata": {"finalizers": ["a.b/c"]}}
        await cluster.client.patch(JOB_SETS, "a", PatchType.MERGE, patch, "default")
        with pytest.raises(StatusError, match="it has 4 Pods"):
            await cluster.client.create(JOB_SETS, make_job_set(4, "b"), "default")

    play(SMALL, scene)


def make_job_set(pods: int, name: str = "a") -> Object:
    container = {"name": "c", "image": "i"}
    job = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    jobs = [{"name": "node", "replicas": pods, "template": {"spec": job}}]
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": jobs},
    }
