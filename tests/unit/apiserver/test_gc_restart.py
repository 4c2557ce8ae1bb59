"""Garbage collection and namespaces across a restart: what was begun is finished."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound
from trainmaster.apiserver import stored
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.apiserver.work import KeyedWorker
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.kit.ids import SeededIds
from trainmaster.kit.scopes import Scope
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

CONFIG_MAPS = GVR("", "v1", "configmaps")
DEFINITIONS = GVR("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NAMESPACES = GVR("", "v1", "namespaces")
SERVICE_ACCOUNTS = GVR("", "v1", "serviceaccounts")


def make(name: str, **metadata: object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def reference(owner: Object, **more: object) -> Object:
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"], **more}


async def names(client: LocalClient, namespace: str = "default") -> list[str]:
    found = (await client.list(CONFIG_MAPS, namespace)).items
    return [item["metadata"]["name"] for item in found if item["metadata"]["name"] != "kube-root-ca.crt"]


async def stopped(store: MemoryStore) -> LocalClient:
    """A client while nobody cleans up, as between a crash and the next start."""
    async with running_cluster(store=store):
        pass
    return LocalClient(ObjectRegistry(store, catalogue.build(), VirtualClock(), SeededIds(2)))


def test_dependents_whose_owner_went_before_a_stop_go_after_it() -> None:
    async def main() -> None:
        store = MemoryStore()
        client = await stopped(store)
        owner = await client.create(CONFIG_MAPS, make("owner"), "default")
        await client.create(CONFIG_MAPS, make("child", ownerReferences=[reference(owner)]), "default")
        await client.create(CONFIG_MAPS, make("other"), "default")
        await client.delete(CONFIG_MAPS, "owner", "default")
        assert await names(client) == ["child", "other"]
        async with running_cluster(store=store) as cluster:
            await cluster.settle()
            assert await names(client) == ["other"]

    run_virtual(main())


@pytest.mark.parametrize(("policy", "want"), [("Foreground", []), ("Orphan", ["child"])])
def test_a_deletion_that_a_stop_interrupted_is_finished(policy: str, want: list[str]) -> None:
    async def main() -> None:
        store = MemoryStore()
        client = await stopped(store)
        owner = await client.create(CONFIG_MAPS, make("owner"), "default")
        child = make("child", ownerReferences=[reference(owner, blockOwnerDeletion=True)])
        await client.create(CONFIG_MAPS, child, "default")
        await client.delete(CONFIG_MAPS, "owner", "default", DeleteOptions(policy))
        assert await names(client) == ["child", "owner"]
        async with running_cluster(store=store) as cluster:
            await cluster.settle()
            assert await names(client) == want

    run_virtual(main())


def test_a_namespace_that_a_stop_interrupted_is_emptied() -> None:
    async def main() -> None:
        store = MemoryStore()
        client = await stopped(store)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
        await client.create(CONFIG_MAPS, make("a"), "n")
        await client.delete(NAMESPACES, "n")
        async with running_cluster(store=store) as cluster:
            await cluster.settle()
            with pytest.raises(NotFound):
                await client.get(NAMESPACES, "n")
            assert await names(client, "n") == []

    run_virtual(main())


def test_a_namespace_with_much_in_it_is_emptied_in_slices() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            client = cluster.client
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
            for number in range(220):
                await client.create(CONFIG_MAPS, make(f"a{number}"), "n")
            await client.delete(NAMESPACES, "n")
            await cluster.settle()
            assert (await client.list(CONFIG_MAPS, "n")).items == []
            with pytest.raises(NotFound):
                await client.get(NAMESPACES, "n")

    run_virtual(main())


def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            owner = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "some-uid"}
            await cluster.client.create(CONFIG_MAPS, make("child", ownerReferences=[owner]), "default")
            await cluster.settle()
            assert await names(cluster.client) == ["child"]

    run_virtual(main())


def test_the_initial_namespaces_are_there_and_made_once() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with running_cluster(store=store) as cluster:
            found = [item["metadata"]["name"] for item in (await cluster.client.list(NAMESPACES)).items]
            assert found == ["default", "kube-node-lease", "kube-public", "kube-system", "kubeflow-system"]
        revision = store.revision
        async with running_cluster(store=store):
            assert store.revision == revision

    run_virtual(main())


def test_a_definition_of_an_older_version_is_brought_up_to_date() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with running_cluster(store=store) as cluster:
            made = await cluster.client.get(DEFINITIONS, "jobsets.jobset.x-k8s.io")
        old = {**made, "spec": {**made["spec"], "versions": []}}
        store.put("apiextensions.k8s.io/customresourcedefinitions", "jobsets.jobset.x-k8s.io", stored.dump(old))
        async with running_cluster(store=store) as cluster:
            await cluster.clock.sleep(60)
            new = await cluster.client.get(DEFINITIONS, "jobsets.jobset.x-k8s.io")
        assert new["spec"] == made["spec"]
        assert (new["metadata"]["uid"], new["metadata"]["generation"]) == (made["metadata"]["uid"], 2)

    run_virtual(main())


@pytest.mark.parametrize(("gvr", "name"), [(SERVICE_ACCOUNTS, "default"), (CONFIG_MAPS, "kube-root-ca.crt")])
def test_what_every_namespace_has_comes_back(gvr: GVR, name: str) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            old = await cluster.client.get(gvr, name, "default")
            await cluster.client.delete(gvr, name, "default")
            await cluster.settle()
            new = await cluster.client.get(gvr, name, "default")
            assert new["metadata"]["uid"] != old["metadata"]["uid"]

    run_virtual(main())


def test_a_removed_root_certificate_comes_back_at_the_next_start() -> None:
    async def main() -> None:
        store = MemoryStore()
        client = await stopped(store)
        await client.delete(CONFIG_MAPS, "kube-root-ca.crt", "default")
        async with running_cluster(store=store):
            assert (await client.get(CONFIG_MAPS, "kube-root-ca.crt", "default"))["data"]["ca.crt"]

    run_virtual(main())


def test_a_finalizer_that_is_removed_late_still_lets_the_namespace_go() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            client = cluster.client
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
            await client.create(CONFIG_MAPS, make("a", finalizers=["example.com/hold"]), "n")
            await client.delete(NAMESPACES, "n")
            await cluster.settle()
            await cluster.clock.sleep(3600)
            assert (await client.get(NAMESPACES, "n"))["status"]["phase"] == "Terminating"
            await client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"metadata": {"finalizers": None}}, "n")
            await cluster.settle()
            with pytest.raises(NotFound):
                await client.get(NAMESPACES, "n")

    run_virtual(main())


def test_an_object_that_cannot_be_handled_ends_nobody_and_is_tried_again() -> None:
    async def main() -> None:
        handled: list[str] = []

        def handle(key: str) -> None:
            handled.append(key)
            if handled == ["poison"]:
                raise KeyError("spec")

        worker: KeyedWorker[str] = KeyedWorker("test", handle, VirtualClock(), MemoryStore())
        async with Scope("test") as scope:
            scope.spawn_forever(worker.run(), name="worker")
            worker.add("poison")
            worker.add("good")
            await asyncio.sleep(60)
        assert handled == ["poison", "good", "poison"]

    run_virtual(main())
