"""The lines KG of the conformance list: what becomes of objects whose owner goes. docs/job.md has the table."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

JOB_SET: Object = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "owner"},
    "spec": {
        "replicatedJobs": [
            {"name": "a", "template": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}}
        ]
    },
}


def run(test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(cluster)

    run_virtual(main())


async def add(cluster: Cluster, name: str, *owners: Object, finalizers: tuple[str, ...] = ()) -> Object:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    meta = {"name": name, "ownerReferences": references, "finalizers": list(finalizers)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    return await cluster.client.create(CONFIG_MAPS, body, "default")


async def delete(cluster: Cluster, name: str, policy: str, gvr: GVR = CONFIG_MAPS) -> None:
    await cluster.client.delete(gvr, name, "default", DeleteOptions(propagation=policy))
    await cluster.settle()


async def list_names(cluster: Cluster) -> set[str]:
    found = (await cluster.client.list(CONFIG_MAPS, "default")).items
    return {item["metadata"]["name"] for item in found} - {"kube-root-ca.crt"}


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_kg_01_dependents_go_with_their_owner(policy: str) -> None:
    async def test(cluster: Cluster) -> None:
        owner = await add(cluster, "owner")
        await add(cluster, "child", owner)
        await delete(cluster, "owner", policy)
        assert await list_names(cluster) == set()

    run(test)


def test_kg_01_orphans_stay_without_the_reference() -> None:
    async def test(cluster: Cluster) -> None:
        owner = await add(cluster, "owner")
        await add(cluster, "child", owner)
        await delete(cluster, "owner", "Orphan")
        assert await list_names(cluster) == {"child"}
        child = await cluster.client.get(CONFIG_MAPS, "child", "default")
        assert "ownerReferences" not in child["metadata"]

    run(test)


def test_kg_02_the_owner_stays_until_what_blocks_it_is_gone() -> None:
    async def test(cluster: Cluster) -> None:
        owner = await add(cluster, "owner")
        await add(cluster, "child", owner, finalizers=("example.com/keep",))
        await delete(cluster, "owner", "Foreground")
        assert await list_names(cluster) == {"owner", "child"}
        standing = await cluster.client.get(CONFIG_MAPS, "owner", "default")
        assert standing["metadata"]["finalizers"] == ["foregroundDeletion"]
        patch = {"metadata": {"finalizers": None}}
        await cluster.client.patch(CONFIG_MAPS, "child", PatchType.MERGE, patch, "default")
        await cluster.settle()
        assert await list_names(cluster) == set()

    run(test)


def test_kg_02_objects_of_other_namespaces_that_name_the_owner_do_not_block_it() -> None:
    async def test(cluster: Cluster) -> None:
        owner = await add(cluster, "owner")
        head = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        meta = {"name": "stranger", "ownerReferences": [{**head, "blockOwnerDeletion": True}]}
        await cluster.client.create(CONFIG_MAPS, {"metadata": meta}, "kube-system")
        for number in range(3):
            await add(cluster, f"child-{number}", owner)
        await delete(cluster, "owner", "Foreground")
        assert await list_names(cluster) == set()

    run(test)


def test_kg_03_a_dependent_with_another_owner_survives() -> None:
    async def test(cluster: Cluster) -> None:
        going, staying = await add(cluster, "going"), await add(cluster, "staying")
        await add(cluster, "child", going, staying)
        await delete(cluster, "going", "Foreground")
        assert await list_names(cluster) == {"staying", "child"}
        child = await cluster.client.get(CONFIG_MAPS, "child", "default")
        assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["staying"]

    run(test)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_kg_04_a_cycle_of_owners_does_not_block(policy: str) -> None:
    async def test(cluster: Cluster) -> None:
        first = await add(cluster, "first")
        second = await add(cluster, "second", first)
        third = await add(cluster, "third", second)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "third", "uid": third["metadata"]["uid"]}
        patch = {"metadata": {"ownerReferences": [{**reference, "blockOwnerDeletion": True}]}}
        await cluster.client.patch(CONFIG_MAPS, "first", PatchType.MERGE, patch, "default")
        await delete(cluster, "first", policy)
        assert await list_names(cluster) == set()

    run(test)


@pytest.mark.parametrize(
    ("policy", "want"),
    [("Background", set()), ("Foreground", set()), ("Orphan", {"child"})],
)
def test_kg_05_custom_kinds_are_owners_too(policy: str, want: set[str]) -> None:
    async def test(cluster: Cluster) -> None:
        owner = await cluster.client.create(JOB_SETS, JOB_SET, "default")
        await add(cluster, "child", owner)
        await delete(cluster, "owner", policy, JOB_SETS)
        assert await list_names(cluster) == want
        assert (await cluster.client.list(JOB_SETS, "default")).items == []

    run(test)
