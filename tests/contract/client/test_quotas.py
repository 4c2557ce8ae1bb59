"""ResourceQuota and LimitRange."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import CONFIG_MAPS, PODS, make_config_map, make_pod, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.meta import GVR, Object

pytestmark = pytest.mark.contract

QUOTAS = GVR("", "v1", "resourcequotas")
LIMIT_RANGES = GVR("", "v1", "limitranges")


def pod(name: str, requests: Object | None = None, limits: Object | None = None) -> Object:
    obj = make_pod(name)
    resources = {"requests": requests or {}, "limits": limits or {}}
    obj["spec"]["containers"][0]["resources"] = {name: value for name, value in resources.items() if value}
    return obj


async def create_quota(stage: Stage, **hard: str) -> None:
    given = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    await stage.client.create(QUOTAS, given, stage.namespace)

    async def counted() -> bool:
        return bool(await used(stage))

    await stage.eventually(counted)


async def used(stage: Stage) -> Object:
    found: Object = (await stage.client.get(QUOTAS, "q", stage.namespace)).get("status", {}).get("used") or {}
    return found


def forbidden(name: str, plural: str, text: str) -> Object:
    return {
        "code": 403,
        "reason": "Forbidden",
        "message": f'{plural} "{name}" is forbidden: {text}',
        "details": {"name": name, "kind": plural},
    }


async def test_objects_are_counted(stage: Stage) -> None:
    await create_quota(stage, **{"count/configmaps": "2"})
    assert await used(stage) == {"count/configmaps": "1"}
    await stage.client.create(CONFIG_MAPS, make_config_map("a"), stage.namespace)
    text = "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2"
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map("b"), stage.namespace)) == forbidden(
        "b", "configmaps", text
    )
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)

    async def freed() -> bool:
        return await used(stage) == {"count/configmaps": "1"}

    await stage.eventually(freed)
    await stage.client.create(CONFIG_MAPS, make_config_map("b"), stage.namespace)


async def test_what_pods_ask_for_is_summed(stage: Stage) -> None:
    await create_quota(
        stage, **{"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi", "requests.nvidia.com/gpu": "1"}
    )
    missing = "failed quota: q: must specify limits.memory for: c; requests.cpu for: c"
    assert await refusal(stage.client.create(PODS, pod("p0"), stage.namespace)) == forbidden("p0", "pods", missing)
    first = pod("p1", {"cpu": "500m", "nvidia.com/gpu": "1"}, {"memory": "100Mi", "nvidia.com/gpu": "1"})
    await stage.client.create(PODS, first, stage.namespace)
    second = pod("p2", {"cpu": "600m"}, {"memory": "2Gi", "nvidia.com/gpu": "1"})
    text = (
        "exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=600m,requests.nvidia.com/gpu=1, used: "
        "limits.memory=100Mi,requests.cpu=500m,requests.nvidia.com/gpu=1, limited: "
        "limits.memory=1Gi,requests.cpu=1,requests.nvidia.com/gpu=1"
    )
    assert await refusal(stage.client.create(PODS, second, stage.namespace)) == forbidden("p2", "pods", text)
    await stage.client.create(PODS, pod("p3", {"cpu": "100m"}, {"memory": "1Mi"}), stage.namespace)
    assert await used(stage) == {
        "limits.memory": "101Mi",
        "pods": "2",
        "requests.cpu": "600m",
        "requests.nvidia.com/gpu": "1",
    }


async def create_range(stage: Stage) -> None:
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "64Mi"},
            "defaultRequest": {"cpu": "100m"},
            "max": {"cpu": "1"},
            "min": {"cpu": "50m", "memory": "1Mi"},
        },
        {"type": "Pod", "max": {"memory": "100Mi"}},
    ]
    given = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}
    made = await stage.client.create(LIMIT_RANGES, given, stage.namespace)
    # What has a default limit has a default request.
    assert made["spec"]["limits"][0]["defaultRequest"] == {"cpu": "100m", "memory": "64Mi"}


async def test_containers_get_the_defaults_of_the_namespace(stage: Stage) -> None:
    await create_range(stage)

    async def filled_in() -> Object:
        # The real server looks at its cache, which may lag.
        made = await stage.client.create(PODS, pod("p1"), stage.namespace)
        if not made["spec"]["containers"][0].get("resources"):
            await stage.client.delete(PODS, "p1", stage.namespace)
            return {}
        return made

    made = await stage.eventually(filled_in)
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "64Mi"},
        "requests": {"cpu": "100m", "memory": "64Mi"},
    }
    assert made["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit "
        "for container c"
    }


@pytest.mark.parametrize(
    ("requests", "limits", "text"),
    [
        ({}, {"cpu": "2"}, "maximum cpu usage per Container is 1, but limit is 2"),
        ({"cpu": "10m"}, {}, "minimum cpu usage per Container is 50m, but request is 10m"),
        ({}, {"memory": "200Mi"}, "maximum memory usage per Pod is 100Mi, but limit is 200Mi"),
        (
            {"cpu": "1m"},
            {"memory": "200Mi", "cpu": "3"},
            "[minimum cpu usage per Container is 50m, but request is 1m, maximum cpu usage per Container is 1, but "
            "limit is 3, maximum memory usage per Pod is 100Mi, but limit is 200Mi]",
        ),
    ],
)
async def test_bounds_hold(stage: Stage, requests: Object, limits: Object, text: str) -> None:
    await create_range(stage)
    status = await refusal(stage.client.create(PODS, pod("p", requests, limits), stage.namespace))
    assert status == forbidden("p", "pods", text)
