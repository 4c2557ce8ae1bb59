"""The View of the embedded mode: always current, by name, by label, by controller."""

from __future__ import annotations

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

CONFIG_MAPS = GVR("", "v1", "configmaps")
NAMESPACES = GVR("", "v1", "namespaces")


async def create(cluster: Cluster, name: str, **metadata: object) -> Object:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return await cluster.client.create(CONFIG_MAPS, obj, "default")


def names(found: object) -> list[str]:
    assert isinstance(found, list)
    return [item["metadata"]["name"] for item in found]


def test_the_view_shows_writes_at_once_and_shares_what_it_parsed() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            assert cluster.view.find(CONFIG_MAPS, "default", "a") is None
            made = await create(cluster, "a")
            found = cluster.view.find(CONFIG_MAPS, "default", "a")
            assert found == made
            assert cluster.view.find(CONFIG_MAPS, "default", "a") is found
            patched = await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"k": "v"}}, "default")
            assert cluster.view.find(CONFIG_MAPS, "default", "a") == patched
            await cluster.client.delete(CONFIG_MAPS, "a", "default")
            assert cluster.view.find(CONFIG_MAPS, "default", "a") is None
            namespace = cluster.view.find(NAMESPACES, "", "default")
            assert namespace is not None
            assert namespace["status"] == {"phase": "Active"}

    run_virtual(main())


def test_listing_by_label_follows_changes() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await create(cluster, "a", labels={"job": "x", "rank": "0"})
            assert names(cluster.view.list(CONFIG_MAPS, "default", {"job": "x"})) == ["a"]
            await create(cluster, "b", labels={"job": "x", "rank": "1"})
            assert names(cluster.view.list(CONFIG_MAPS, "default", {"job": "x"})) == ["a", "b"]
            assert names(cluster.view.list(CONFIG_MAPS, "", {"job": "x", "rank": "1"})) == ["b"]
            assert names(cluster.view.list(CONFIG_MAPS, "kube-system", {"job": "x"})) == []
            patch = {"metadata": {"labels": {"job": "y"}}}
            await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, "default")
            assert names(cluster.view.list(CONFIG_MAPS, "default", {"job": "x"})) == ["b"]
            assert names(cluster.view.list(CONFIG_MAPS, "default", {"job": "y"})) == ["a"]
            await cluster.client.delete(CONFIG_MAPS, "b", "default")
            assert names(cluster.view.list(CONFIG_MAPS, "default", {"job": "x"})) == []

    run_virtual(main())


def test_owned_objects_are_those_with_that_controller() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            owner = await create(cluster, "owner")
            uid = owner["metadata"]["uid"]
            ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
            await create(cluster, "child", ownerReferences=[{**ref, "controller": True}])
            await create(cluster, "guest", ownerReferences=[ref])
            claimed: Object = {"apiVersion": "v1", "kind": "ConfigMap"}
            claimed["metadata"] = {"name": "liar", "ownerReferences": [{**ref, "controller": True}]}
            await cluster.client.create(CONFIG_MAPS, claimed, "kube-system")
            assert names(cluster.view.owned(CONFIG_MAPS, "default", uid)) == ["child"]
            for name, controls in (("child", False), ("guest", True)):
                patch = {"metadata": {"ownerReferences": [{**ref, "controller": controls}]}}
                await cluster.client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, "default")
            assert names(cluster.view.owned(CONFIG_MAPS, "default", uid)) == ["guest"]
            await cluster.client.delete(CONFIG_MAPS, "owner", "default", DeleteOptions("Orphan"))
            await cluster.settle()
            assert names(cluster.view.owned(CONFIG_MAPS, "default", uid)) == []

    run_virtual(main())
