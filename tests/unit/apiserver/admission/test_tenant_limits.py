"""What the containers of tenants are limited to when they do not say it themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, RESOURCE_QUOTAS
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import STORAGE, Allowance
from trainmaster.client.contract import PatchType
from trainmaster.tenancy.tenants import TenantRegister
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def play(allowance: Allowance, scene: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await TenantRegister(cluster.client, cluster.clock).add("ann", allowance, walled=True)
            await scene(cluster)

    run_virtual(main())


def build_pod(name: str, *resources: Object, first: Object | None = None) -> Object:
    containers = [
        {"name": f"c{number}", "image": "i", "resources": amounts} for number, amounts in enumerate(resources)
    ]
    spec: Object = {"containers": containers}
    if first is not None:
        spec["initContainers"] = [{"name": "first", "image": "i", "resources": first}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_container_that_names_nothing_gets_a_default_that_the_tenant_can_afford() -> None:
    async def scene(cluster: Cluster) -> None:
        made = await cluster.client.create(PODS, build_pod("a", {}, first={}), "ann")
        for container in made["spec"]["containers"] + made["spec"]["initContainers"]:
            assert container["resources"]["limits"] == {"cpu": "1", "memory": "256Mi"}

    play(Allowance(cpu="1", memory="256Mi"), scene)


def test_a_request_without_a_limit_is_its_own_limit() -> None:
    async def scene(cluster: Cluster) -> None:
        asked = {"requests": {"cpu": "2", "memory": "3Gi"}}
        made = await cluster.client.create(PODS, build_pod("a", asked, first=asked), "ann")
        for container in made["spec"]["containers"] + made["spec"]["initContainers"]:
            assert container["resources"]["limits"] == asked["requests"]

    play(Allowance(cpu="4", memory="8Gi"), scene)


def test_a_tenant_without_such_a_quota_may_use_what_is_idle() -> None:
    async def scene(cluster: Cluster) -> None:
        made = await cluster.client.create(PODS, build_pod("a", {"requests": {"cpu": "2"}}), "ann")
        assert "limits" not in made["spec"]["containers"][0]["resources"]

    play(Allowance(), scene)


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param([{"limits": {"memory": "1Gi"}}], id="a limit above all"),
        pytest.param([{"requests": {"memory": "1Mi"}, "limits": {"memory": "1Gi"}}], id="a small request"),
        pytest.param([{"limits": {"memory": "200Mi"}}, {}], id="one container says nothing"),
        pytest.param([{"limits": {"memory": "200Mi"}}, {"limits": {"memory": "57Mi"}}], id="two that are too much"),
        pytest.param([{"limits": {"memory": "268435456500m"}}], id="a fraction more"),
        pytest.param([{"limits": {"memory": "9e99"}}], id="very much"),
        pytest.param([{"limits": {"memory": "-1"}}], id="negative"),
        pytest.param([{"limits": {"memory": "0"}, "requests": {"memory": "1Gi"}}], id="a request above its limit"),
    ],
)
def test_no_pod_gets_more_than_the_tenant_has(resources: list[Object]) -> None:
    async def scene(cluster: Cluster) -> None:
        with pytest.raises(StatusError) as refused:
            await cluster.client.create(PODS, build_pod("a", *resources), "ann")
        assert refused.value.code in (403, 422)

    play(Allowance(cpu="1", memory="256Mi"), scene)


def test_what_the_node_measured_stays_in_the_quota() -> None:
    async def scene(cluster: Cluster) -> None:
        patch = {"status": {"used": {STORAGE: "12Mi"}}}
        await cluster.client.patch(RESOURCE_QUOTAS, "tenant", PatchType.MERGE, patch, "ann", subresource="status")
        await cluster.client.create(PODS, build_pod("a", {}), "ann")
        await cluster.client.delete(PODS, "a", "ann")
        await cluster.registry.settled()
        used = (await cluster.client.get(RESOURCE_QUOTAS, "tenant", "ann"))["status"]["used"]
        assert (used[STORAGE], used["pods"]) == ("12Mi", "0")

    play(Allowance(storage="1Gi"), scene)
