"""Tenants of an earlier version: what they get, and what stays as the administrator left it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from trainmaster.api import tenancy
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, LIMIT_RANGES, NAMESPACES, PODS, RESOURCE_QUOTAS
from trainmaster.api.tenancy import COMPLETED, JOBS_KEY, OBJECT_BYTES, PIDS
from trainmaster.app.tenant_upgrade import upgrade_tenants
from trainmaster.client.contract import PatchType
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def play(scene: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await scene(cluster)

    run_virtual(main())


async def add_old_tenant(cluster: Cluster, hard: Object, requests: Object | None = None) -> None:
    """As c96e675 made one."""
    await cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", 611_000))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tenant"}, "spec": {"hard": hard}}
    await cluster.client.create(RESOURCE_QUOTAS, quota, "ann")
    if requests is not None:
        spec = {"limits": [{"type": "Container", "defaultRequest": requests}]}
        limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "tenant"}, "spec": spec}
        await cluster.client.create(LIMIT_RANGES, limits, "ann")


async def read_hard(cluster: Cluster) -> Object:
    found: Object = (await cluster.client.get(RESOURCE_QUOTAS, "tenant", "ann"))["spec"]["hard"]
    return found


def test_a_quota_of_before_is_completed_once_and_keeps_what_it_says() -> None:
    async def scene(cluster: Cluster) -> None:
        given = {"count/trainjobs.trainer.kubeflow.org": "5", "requests.cpu": "4", "pods": "3"}
        await add_old_tenant(cluster, given, {"cpu": "500m"})
        assert await upgrade_tenants(cluster.client, cluster.registry) == 1
        hard = await read_hard(cluster)
        assert {name: hard[name] for name in given} == given
        assert hard["count/mpijobs.kubeflow.org"] == "5"
        assert (hard["limits.cpu"], hard[PIDS], hard[OBJECT_BYTES]) == ("4", "4096", "64Mi")
        assert "limits.memory" not in hard
        await cluster.client.patch(
            RESOURCE_QUOTAS, "tenant", PatchType.MERGE, {"spec": {"hard": {PIDS: None, "pods": "9"}}}, "ann"
        )
        assert await upgrade_tenants(cluster.client, cluster.registry) == 0
        hard = await read_hard(cluster)
        assert (hard.get(PIDS), hard["pods"]) == (None, "9")

    play(scene)


@pytest.mark.parametrize(("jobs", "want"), [("5", "5"), (None, None)], ids=["limited", "lifted"])
def test_a_quota_from_before_v1_jobs_were_counted_limits_them_as_it_limits_trainjobs(
    jobs: str | None, want: str | None
) -> None:
    async def scene(cluster: Cluster) -> None:
        await add_old_tenant(cluster, {"pods": "3"} if jobs is None else {JOBS_KEY: jobs})
        mark: Object = {"metadata": {"annotations": {COMPLETED: "1"}}}
        await cluster.client.patch(RESOURCE_QUOTAS, "tenant", PatchType.MERGE, mark, "ann")
        assert await upgrade_tenants(cluster.client, cluster.registry) == 1
        hard = await read_hard(cluster)
        assert hard.get("count/pytorchjobs.kubeflow.org") == want
        assert PIDS not in hard, "an administrator may have removed it"
        assert await upgrade_tenants(cluster.client, cluster.registry) == 0

    play(scene)


def test_pods_that_named_nothing_are_still_let_in() -> None:
    async def scene(cluster: Cluster) -> None:
        await add_old_tenant(cluster, {"requests.cpu": "4", "requests.memory": "8Gi"}, {"cpu": "1", "memory": "1Gi"})
        await upgrade_tenants(cluster.client, cluster.registry)
        pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
        pod["spec"] = {"containers": [{"name": "c", "image": "i"}]}
        made = await cluster.client.create(PODS, pod, "ann")
        assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}

    play(scene)


def test_whoever_has_more_than_the_default_may_go_on() -> None:
    async def scene(cluster: Cluster) -> None:
        await add_old_tenant(cluster, {})
        for number in range(600):
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            await cluster.client.create(CONFIG_MAPS, obj, "ann")
        await upgrade_tenants(cluster.client, cluster.registry)
        assert int((await read_hard(cluster))["configmaps"]) > 1200

    play(scene)
