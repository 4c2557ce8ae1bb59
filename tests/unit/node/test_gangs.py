"""Who shares which directory: only the launcher of an MPIJob sees where its workers listen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.v1jobs.frameworks import MPI, OPERATOR_NAME
from trainmaster.client.contract import Client
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.gangs import GangDirectories
from trainmaster.node.workloads import Workloads
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def build_job(name: str) -> Object:
    containers = [{"name": "mpi", "image": "i"}]
    launcher = {"template": {"spec": {"containers": containers}}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": {"Launcher": launcher}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def build_pod(job: Object, name: str, uid: str, namespace: str = "default") -> Pod:
    meta = job["metadata"]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": meta["name"], "uid": meta["uid"]}
    owners = [{**owner, "controller": True}]
    labels = {OPERATOR_NAME: MPI.controller}
    metadata = {"name": name, "namespace": namespace, "uid": uid, "ownerReferences": owners, "labels": labels}
    return Pod({"metadata": metadata, "spec": {"containers": [{"name": "mpi", "image": "i"}]}})


def run(tmp_path: Path, test: Callable[[GangDirectories, Client, Object], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            job = await cluster.client.create(MPI.gvr, build_job("a"), "default")
            await test(GangDirectories(tmp_path, cluster.client, Workloads(cluster.client)), cluster.client, job)

    run_virtual(main())


def test_workers_listen_where_only_the_launcher_of_the_same_job_looks(tmp_path: Path) -> None:
    async def test(gangs: GangDirectories, client: Client, job: Object) -> None:
        uid = job["metadata"]["uid"]
        worker, launcher = build_pod(job, "a-worker-0", "w"), build_pod(job, "a-launcher", "l")
        assert await gangs.find_socket(worker) == f"{tmp_path}/{uid}/w"
        assert await gangs.make(launcher) == f"{tmp_path}/{uid}"
        assert await gangs.is_launcher(launcher) and await gangs.find_socket(launcher) == ""
        assert not await gangs.is_launcher(worker)

    run(tmp_path, test)


def test_a_pod_that_only_claims_to_belong_to_a_job_is_on_its_own(tmp_path: Path) -> None:
    async def test(gangs: GangDirectories, client: Client, job: Object) -> None:
        elsewhere = build_pod(job, "a-launcher", "x", namespace="other")
        wrong = build_pod({"metadata": {"name": "a", "uid": "invented"}}, "a-launcher", "y")
        for pod in (elsewhere, wrong):
            assert not await gangs.is_launcher(pod)
            assert await gangs.find_socket(pod) == ""
            assert await gangs.make(pod) == f"{tmp_path}/{pod.uid}"

    run(tmp_path, test)


def test_the_directory_goes_with_the_last_pod_whoever_claims_it(tmp_path: Path) -> None:
    async def test(gangs: GangDirectories, client: Client, job: Object) -> None:
        worker = build_pod(job, "a-worker-0", "w")
        directory = Path(await gangs.make(worker))
        created = Pod(await client.create(PODS, dict(worker.raw), "default"))
        claims = build_pod(job, "a-worker-9", "claims", namespace="other")
        assert await gangs.find_unused(claims) is None, "a Pod of the job is still there"
        assert await gangs.find_unused(created) == directory

    run(tmp_path, test)
