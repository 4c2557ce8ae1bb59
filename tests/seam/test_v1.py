"""Jobs of `kubeflow.org/v1` on a real API server: our operator in place of training-operator, with its own role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import pytest

from tests.flow.plant import Script
from tests.flow.test_v1_flow import REPLICA_TYPE, has, list_conditions, make_job
from tests.kube.cluster import KubeCluster
from tests.seam.stage import (
    GROUPS,
    KwokNode,
    Site,
    cut_again_and_again,
    grant_own,
    open_site,
    restart_once,
    write_again_and_again,
)
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES
from trainmaster.api.status import AlreadyExists, NotFound
from trainmaster.api.v1jobs.frameworks import MPI, PYTORCH, TENSORFLOW
from trainmaster.client.contract import ActingIdentity
from trainmaster.jobs.models.v1jobs import MPIJob, PyTorchJob, TFJob
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.names import NAME
from trainmaster.operator.rights import SERVICE_ACCOUNT, Duties

pytestmark = pytest.mark.kube

T = TypeVar("T")
KINDS = (PyTorchJob, TFJob, MPIJob)
LIMIT = 60.0


def make_identity(suffix: str) -> ActingIdentity:
    return ActingIdentity(f"{SERVICE_ACCOUNT}-{suffix}", groups=GROUPS)


async def install(site: Site, duties: Duties, suffix: str) -> None:
    """Under another name, so that the tests of TrainJobs keep their role."""
    text = json.dumps(build_manifests(duties)["items"]).replace(f'"name": "{NAME}"', f'"name": "{NAME}-{suffix}"')
    plurals = {
        "CustomResourceDefinition": CUSTOM_RESOURCE_DEFINITIONS,
        "ServiceAccount": GVR("", "v1", "serviceaccounts"),
        "ClusterRole": GVR("rbac.authorization.k8s.io", "v1", "clusterroles"),
        "ClusterRoleBinding": GVR("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    }
    for obj in json.loads(text):
        if obj["kind"] not in plurals:
            continue
        try:
            await site.client.create(plurals[obj["kind"]], obj, obj["metadata"].get("namespace", ""))
        except AlreadyExists:
            continue
    await grant_own(site.client, site.namespace, make_identity(suffix), duties)


async def install_kinds(site: Site) -> None:
    await install(site, Duties(v1_jobs=KINDS), "v1")
    for model in KINDS:
        await wait(partial(is_served, site, model.gvr))


async def is_served(site: Site, gvr: GVR) -> bool:
    try:
        await site.client.list(gvr, site.namespace)
    except NotFound:
        return False
    return True


async def wait(wanted: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(LIMIT):
        while True:
            found = await wanted()
            if found:
                return found
            await asyncio.sleep(0.1)


@asynccontextmanager
async def running_site(cluster: KubeCluster, script: Script, gang_scheduler: str = "") -> AsyncIterator[Site]:
    async with open_site(cluster) as site, Scope("v1") as scope:
        await install_kinds(site)
        site.identity, site.v1_jobs, site.gang_scheduler = make_identity("v1"), KINDS, gang_scheduler
        node = KwokNode(script, namespace=site.namespace)
        scope.spawn_forever(node.run(site.client, SystemClock()), name="v1.node")
        await site.start()
        yield site


async def finish(site: Site, gvr: GVR, kind: str) -> Object:
    async def look() -> Object | None:
        job = await site.client.get(gvr, "a", site.namespace)
        return job if has(kind)(job) else None

    try:
        found = await wait(look)
    except TimeoutError:
        job = await site.client.get(gvr, "a", site.namespace)
        pods = [pod["status"] for pod in (await site.client.list(PODS, site.namespace)).items]
        raise AssertionError(f"{job.get('status')}\n{pods}\n{site.calls}") from None
    assert found is not None
    return found


async def submit(site: Site, job: Object, gvr: GVR) -> None:
    job["metadata"]["namespace"] = site.namespace
    await site.client.create(gvr, job, site.namespace)


async def list_names(site: Site, gvr: GVR) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in (await site.client.list(gvr, site.namespace)).items)


def end_only(kind: str) -> Script:
    return lambda pod, run: 0 if pod["metadata"]["labels"][REPLICA_TYPE] == kind else -1


def test_a_pytorch_job_survives_restarts_cuts_and_other_writers(seam_cluster: KubeCluster) -> None:
    failed: list[str] = []

    def play(pod: Object, run: int) -> int:
        """Worker 0 fails once with a retryable code; the master ends when that is over."""
        labels = pod["metadata"]["labels"]
        if labels[REPLICA_TYPE] == "worker" and not failed:
            failed.append(pod["metadata"]["uid"])
            return 137
        return 0 if labels[REPLICA_TYPE] == "worker" else -1

    async def main() -> None:
        async with running_site(seam_cluster, play) as site, Scope("trouble") as scope:
            works = [cut_again_and_again(site.proxy), restart_once(site)]
            works.append(write_again_and_again(site.client, PYTORCH.gvr, site.namespace))
            trouble = [scope.spawn(work, name="v1.trouble") for work in works]
            await submit(site, make_job(PYTORCH, {"Worker": 2}, "ExitCode"), PYTORCH.gvr)
            job = await finish(site, PYTORCH.gvr, "Succeeded")
            assert job["status"]["restarts"] == 1, "counted once, whatever happened in between"
            assert list_conditions(job)["Created"] == "True"
            assert await list_names(site, PODS) == await list_names(site, SERVICES) == ["a-worker-0", "a-worker-1"]
            for task in trouble:
                task.cancel()

    asyncio.run(main())


def test_a_tf_job_with_servers_cleans_up_and_expires(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with running_site(seam_cluster, end_only("worker")) as site:
            policy = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 3}
            await submit(site, make_job(TENSORFLOW, {"PS": 1, "Worker": 2}, runPolicy=policy), TENSORFLOW.gvr)
            await finish(site, TENSORFLOW.gvr, "Succeeded")

            async def is_gone() -> bool:
                return not (await site.client.list(TENSORFLOW.gvr, site.namespace)).items

            await wait(is_gone)
            assert await list_names(site, PODS) == await list_names(site, SERVICES) == []

    asyncio.run(main())


def test_an_mpi_job_gets_its_role_and_ends_with_its_launcher(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with running_site(seam_cluster, end_only("launcher")) as site:
            policy = {"cleanPodPolicy": "Running"}
            await submit(site, make_job(MPI, {"Launcher": 1, "Worker": 2}, runPolicy=policy), MPI.gvr)
            job = await finish(site, MPI.gvr, "Succeeded")
            assert job["status"]["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
            assert "a-config" in await list_names(site, CONFIG_MAPS)

            async def is_clean() -> bool:
                return await list_names(site, PODS) == ["a-launcher"]

            await wait(is_clean)

    asyncio.run(main())
