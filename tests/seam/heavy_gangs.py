"""Gangs with the real coscheduling scheduler: on nodes that are too few for all Pods of a job, none is bound; when
there is another node, all are.

make heavy
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.flow.stage import make_trainjob
from tests.flow.test_v1_flow import make_job
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.kube.gangs import SCHEDULER, install_pod_groups, start_gang_scheduler
from tests.kube.managers import add_nodes
from tests.seam.stage import Site
from tests.seam.test_v1 import running_site, wait
from tools.toolbox import Toolbox
from trainmaster.api.meta import Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    COSCHEDULING_POD_GROUPS,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.operator.manifests import build_manifests

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

_NEVER_MS = 3_600_000
_CPUS = "200"
"""Of a Pod. A node has 256, so each node takes one."""
_QUIET_SECONDS = 5.0
_BIND_SECONDS = 120.0
"""The scheduler looks again at Pods that it refused after up to 40 seconds, and then backs off."""


@pytest.fixture(scope="module")
def gang_cluster() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "jobset", "kwok", "coscheduling"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    parts = Parts(jobset=True, nodes=2, complete_ms=_NEVER_MS, unlimited=True)
    with KubeCluster(parts, toolbox=toolbox, manifests=json.dumps(build_manifests())) as cluster:
        install_pod_groups(cluster)
        start_gang_scheduler(cluster)
        yield cluster


async def list_pods(site: Site) -> list[Object]:
    return (await site.client.list(PODS, site.namespace)).items


async def check_all_or_none(cluster: KubeCluster, site: Site, name: str) -> None:
    """Of three Pods, of which two would fit at first."""

    async def are_refused() -> bool:
        pods = await list_pods(site)
        return len(pods) == 3 and any(map(is_unschedulable, pods))

    await wait(are_refused)
    await asyncio.sleep(_QUIET_SECONDS)
    pods = await list_pods(site)
    assert {pod["spec"]["schedulerName"] for pod in pods} == {SCHEDULER}
    assert [pod["spec"].get("nodeName", "") for pod in pods] == ["", "", ""]
    group = await site.client.get(COSCHEDULING_POD_GROUPS, name, site.namespace)
    assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (3, "600")
    await asyncio.to_thread(add_nodes, cluster, range(2, 3))

    try:
        async with asyncio.timeout(_BIND_SECONDS):
            while not all(pod["spec"].get("nodeName") for pod in await list_pods(site)):
                await asyncio.sleep(0.5)
    except TimeoutError:
        found = [(pod["spec"].get("nodeName"), pod["status"]) for pod in await list_pods(site)]
        raise AssertionError(f"{found}\n{cluster.processes.log('coscheduling').read_text()[-3000:]}") from None
    await site.client.delete(NODES, "node-2")


def is_unschedulable(pod: Object) -> bool:
    return any(
        one["type"] == "PodScheduled" and one["status"] == "False" for one in pod["status"].get("conditions") or ()
    )


def test_the_pods_of_a_train_job_are_bound_together_or_not_at_all(gang_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with running_site(gang_cluster, lambda pod, run: -1, SCHEDULER) as site:
            await site.client.create(TRAINING_RUNTIMES, await make_runtime(site), site.namespace)
            job = make_trainjob(nodes=3, runtime="gang")
            job["metadata"]["namespace"] = site.namespace
            job["spec"]["runtimeRef"]["kind"] = "TrainingRuntime"
            job["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": _CPUS}}
            await site.client.create(TRAIN_JOBS, job, site.namespace)
            await check_all_or_none(gang_cluster, site, "first")
            await site.client.delete(TRAIN_JOBS, "first", site.namespace)
            await wait(lambda: has_no_pods(site))

    asyncio.run(main())


async def make_runtime(site: Site) -> Object:
    """The shipped one, with a policy for gangs and their scheduler."""

    async def find() -> Object | None:
        items = (await site.client.list(CLUSTER_TRAINING_RUNTIMES)).items
        return next((item for item in items if item["metadata"]["name"] == "torch-distributed"), None)

    found = await wait(find)
    assert found is not None
    spec = found["spec"]
    spec["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 30}}
    for job in spec["template"]["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["schedulerName"] = SCHEDULER
    meta = {"name": "gang", "namespace": site.namespace, "labels": {"trainer.kubeflow.org/framework": "torch"}}
    return {"apiVersion": TRAINING_RUNTIMES.api_version, "kind": "TrainingRuntime", "metadata": meta, "spec": spec}


async def has_no_pods(site: Site) -> bool:
    return not await list_pods(site)


def test_the_pods_of_a_pytorch_job_are_bound_together_or_not_at_all(gang_cluster: KubeCluster) -> None:
    """With `--gang-scheduler-name`, Pods get the scheduler and their group without further ado."""

    async def main() -> None:
        async with running_site(gang_cluster, lambda pod, run: -1, SCHEDULER) as site:
            job = make_job(PYTORCH, {"Master": 1, "Worker": 2})
            for replica in job["spec"][PYTORCH.replicas_field].values():
                container = replica["template"]["spec"]["containers"][0]
                container["resources"] = {"requests": {"cpu": _CPUS}}
            job["metadata"]["namespace"] = site.namespace
            await site.client.create(PYTORCH.gvr, job, site.namespace)
            await check_all_or_none(gang_cluster, site, "a")

    asyncio.run(main())
