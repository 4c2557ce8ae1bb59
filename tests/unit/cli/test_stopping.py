"""`down --stop-jobs`: which jobs are suspended, which Pods are deleted, and what it waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.cli.stopping import is_stoppable, suspend_all, wait_for_pods
from trainmaster.client.contract import PatchType
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o", "controller": True}]}


def make_job(**spec: Any) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({}, True, id="a running job"),
        pytest.param({"spec": {"suspend": True}}, False, id="suspended already"),
        pytest.param({"spec": {"suspend": False}}, True, id="resumed"),
        pytest.param({"metadata": OWNED}, False, id="controlled by something else"),
        pytest.param({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False, id="complete"),
        pytest.param({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, False, id="failed"),
        pytest.param({"status": {"conditions": [{"type": "Failed", "status": "False"}]}}, True, id="not failed"),
    ],
)
def test_only_unfinished_jobs_at_the_top_of_their_chain_are_stopped(change: Object, want: bool) -> None:
    assert is_stoppable(Job({**make_job(), **change})) is want


def test_a_jobset_and_a_trainjob_that_have_ended_are_not_stopped() -> None:
    def end(kind: str) -> Object:
        return {**make_job(), "status": {"conditions": [{"type": kind, "status": "True"}]}}

    assert not is_stoppable(JobSet(end("Completed"))) and not is_stoppable(TrainJob(end("Complete")))
    assert is_stoppable(JobSet(make_job())) and is_stoppable(TrainJob(make_job()))


TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["true"]}]}}


async def create(cluster: Cluster, gvr: GVR, kind: str, name: str, **more: Any) -> Object:
    metadata = {"name": name, "namespace": "default", **more.pop("metadata", {})}
    version = f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version
    return await cluster.client.create(
        gvr, {"apiVersion": version, "kind": kind, "metadata": metadata, **more}, "default"
    )


async def make_pod(cluster: Cluster, name: str, metadata: Object, phase: str) -> None:
    await create(cluster, PODS, "Pod", name, metadata=metadata, spec=TEMPLATE["spec"])
    patch = {"status": {"phase": phase}}
    await cluster.client.patch(PODS, name, PatchType.MERGE, patch, "default", subresource="status")


def test_jobs_are_suspended_loose_pods_are_deleted_and_finished_ones_are_left_alone() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            owner = await create(cluster, CONFIG_MAPS, "ConfigMap", "o")
            owned = {"ownerReferences": [{**OWNED["ownerReferences"][0], "uid": owner["metadata"]["uid"]}]}
            await create(cluster, JOBS, "Job", "top", spec={"template": TEMPLATE})
            await create(cluster, JOBS, "Job", "owned", metadata=owned, spec={"template": TEMPLATE})
            await make_pod(cluster, "loose", {}, "Succeeded")
            await make_pod(cluster, "owned", owned, "Running")
            assert await suspend_all(cluster.client) == 1
            jobs = {
                job["metadata"]["name"]: job["spec"].get("suspend") for job in (await cluster.client.list(JOBS)).items
            }
            assert jobs == {"top": True, "owned": False}
            pods = {pod["metadata"]["name"] for pod in (await cluster.client.list(PODS)).items}
            assert pods == {"loose", "owned"}
            assert await suspend_all(cluster.client) == 0
            for gvr in (TRAIN_JOBS, JOB_SETS):
                assert (await cluster.client.list(gvr)).items == []

    run_virtual(main())


def test_it_waits_until_the_last_pod_has_stopped() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await make_pod(cluster, "one", {}, "Running")
            await make_pod(cluster, "two", {}, "Running")
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(wait_for_pods(cluster.client))
                await cluster.clock.sleep(10)
                patch = {"status": {"phase": "Succeeded"}}
                await cluster.client.patch(PODS, "one", PatchType.MERGE, patch, "default", subresource="status")
                await cluster.clock.sleep(10)
                assert not waiting.done()
                await cluster.client.patch(PODS, "two", PatchType.MERGE, patch, "default", subresource="status")

    run_virtual(main())


def test_without_running_pods_there_is_nothing_to_wait_for() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await make_pod(cluster, "done", {}, "Failed")
            await wait_for_pods(cluster.client)

    run_virtual(main())
