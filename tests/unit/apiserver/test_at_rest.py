"""Objects at rest: what is packed, that a start passes over it, and that it is still due and owned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, SECRETS
from trainmaster.apiserver.at_rest import ObjectPacking
from trainmaster.client.contract import ListOptions, PatchType, WatchOptions
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import NoSpace
from trainmaster.store.sqlite import SqliteStore
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


class EndedRules:
    """ConfigMaps and Secrets with the label `ended` are at rest, for as long as it says."""

    gvrs = (CONFIG_MAPS, SECRETS)

    def outline(self, gvr: GVR, obj: Object) -> tuple[Object, tuple[float, float] | None] | None:
        ended = obj["metadata"].get("labels", {}).get("ended")
        if ended is None:
            return None
        return {"data": {"kept": "yes"}}, (float(ended), 5000.0) if ended else None


def make(name: str, ended: str | None, kind: str = "ConfigMap", owner: Object | None = None) -> Object:
    meta: Object = {"name": name, "namespace": "default", "labels": {} if ended is None else {"ended": ended}}
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
        ]
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}


async def pack(cluster: Cluster, *, idle: bool = True) -> list[str]:
    """Packs at once; returns what is packed."""
    packing = ObjectPacking(cluster.registry, cluster.clock, EndedRules(), lambda: idle)
    await packing.pack(0)
    buckets = [gvr.collection for gvr in EndedRules.gvrs]
    return [record.name for bucket in buckets for record in cluster.store.scan(bucket) if record.is_packed]


async def pack_family(cluster: Cluster) -> None:
    """Packs a ConfigMap and a Secret that it owns."""
    owner = await cluster.client.create(CONFIG_MAPS, make("owner", ""), "default")
    await cluster.client.create(SECRETS, make("child", "", "Secret", owner), "default")
    await pack(cluster)


def test_only_what_is_at_rest_is_packed_and_only_while_the_controllers_are_idle() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            for name, ended in (("a", ""), ("b", None), ("c", "")):
                await cluster.client.create(CONFIG_MAPS, make(name, ended), "default")
            assert await pack(cluster, idle=False) == []
            assert await pack(cluster) == ["default/a", "default/c"]
            assert cluster.store.settled_revision == cluster.store.revision
            page = await cluster.client.list(CONFIG_MAPS, "default")
            assert [item["metadata"]["name"] for item in page.items if "labels" in item["metadata"]] == ["a", "c"]
            listed = cluster.view.list(CONFIG_MAPS, "default", {"ended": ""})
            assert [item["metadata"]["name"] for item in listed] == ["a", "c"]
            patched = await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"x": "1"}}, "default")
            assert patched["data"] == {"x": "1"} and patched["metadata"]["labels"] == {"ended": ""}
            outlines = list(cluster.view.list_outlines(CONFIG_MAPS))
            assert [(one["metadata"]["name"], one["data"]) for one in outlines] == [("c", {"kept": "yes"})]

    run_virtual(main())


def test_an_object_that_has_changed_lately_is_not_packed() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CONFIG_MAPS, make("a", ""), "default")
            packing = ObjectPacking(cluster.registry, cluster.clock, EndedRules(), lambda: True)
            await asyncio.sleep(100)
            await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"x": "1"}}, "default")
            await asyncio.sleep(550)
            await packing.pack()
            record = cluster.store.get("configmaps", "default/a")
            assert record is not None and not record.is_packed
            await asyncio.sleep(100)
            await packing.pack()
            record = cluster.store.get("configmaps", "default/a")
            assert record is not None and record.is_packed

    run_virtual(main())


def test_after_a_restart_an_object_at_rest_is_reported_when_it_is_due(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            due = {"soon": clock.unix() + 50, "late": clock.unix() + 5000, "changed": clock.unix() + 50}
            for name, moment in due.items():
                await cluster.client.create(CONFIG_MAPS, make(name, str(moment)), "default")
            await cluster.client.create(CONFIG_MAPS, make("never", ""), "default")
            await cluster.client.create(CONFIG_MAPS, make("active", None), "default")
            await pack(cluster)
        heard: list[str] = []
        async with running_cluster(directory=tmp_path, clock=clock) as cluster, Scope("test") as scope:
            scope.spawn(cluster.view.follow(CONFIG_MAPS, lambda obj: heard.append(obj["metadata"]["name"])), name="f")
            await asyncio.sleep(1)
            assert [name for name in heard if not name.startswith("kube-")] == ["active"]
            heard.clear()
            await cluster.client.patch(CONFIG_MAPS, "changed", PatchType.MERGE, {"data": {"x": "1"}}, "default")
            assert heard == ["changed"]
            await asyncio.sleep(48)
            assert heard == ["changed"]
            await asyncio.sleep(2)
            assert heard == ["changed", "soon"], "what has changed is not at rest any more"
            await asyncio.sleep(5000)
            assert heard == ["changed", "soon", "late"]
            scope.cancel()

    run_virtual(main())


def test_owners_are_known_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            await pack_family(cluster)
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            await cluster.settle()
            assert cluster.store.get("secrets", "default/child") is not None
            await cluster.client.delete(CONFIG_MAPS, "owner", "default")
            await cluster.settle()
            assert cluster.store.get("secrets", "default/child") is None

    run_virtual(main())


def test_an_orphan_at_rest_is_collected_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            await pack_family(cluster)
        # As if the server had been killed before the collector could act.
        async with SqliteStore.open(tmp_path, clock) as store:
            store.delete("configmaps", "default/owner", b"{}")
            child = store.get("secrets", "default/child")
            assert child is not None and child.is_packed
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            await cluster.settle()
            assert cluster.store.get("secrets", "default/child") is None

    run_virtual(main())


def test_a_deletion_that_the_controllers_may_not_have_seen_is_reported_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            for name in ("early", "late"):
                await cluster.client.create(CONFIG_MAPS, make(name, None), "default")
            await cluster.client.delete(CONFIG_MAPS, "early", "default")
            await pack(cluster)
            await cluster.client.delete(CONFIG_MAPS, "late", "default")
        heard: list[str] = []
        async with running_cluster(directory=tmp_path, clock=clock) as cluster, Scope("test") as scope:
            scope.spawn(cluster.view.follow(CONFIG_MAPS, lambda obj: heard.append(obj["metadata"]["name"])), name="f")
            await asyncio.sleep(1)
            assert [name for name in heard if not name.startswith("kube-")] == ["late"]
            scope.cancel()

    run_virtual(main())


def test_objects_at_rest_are_selected_by_label_and_field_and_watched_from_before(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            first = await cluster.client.create(CONFIG_MAPS, make("a", ""), "default")
            await cluster.client.create(CONFIG_MAPS, make("b", ""), "default")
            await cluster.client.create(CONFIG_MAPS, make("c", None), "default")
            assert await pack(cluster) == ["default/a", "default/b"]
        async with running_cluster(directory=tmp_path, clock=clock) as cluster:
            for options in (ListOptions(label_selector="ended="), ListOptions(field_selector="metadata.name!=c")):
                page = await cluster.client.list(CONFIG_MAPS, "default", options)
                names = [item["metadata"]["name"] for item in page.items]
                assert [name for name in names if not name.startswith("kube-")] == ["a", "b"]
            since = WatchOptions(resource_version=first["metadata"]["resourceVersion"], label_selector="ended")
            async with cluster.client.watch(CONFIG_MAPS, "default", since) as events:
                event = await anext(aiter(events))
            assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "b")

    run_virtual(main())


def test_a_full_disk_delays_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CONFIG_MAPS, make("a", ""), "default")
            packing = ObjectPacking(cluster.registry, cluster.clock, EndedRules(), lambda: True)

            async def refuse(revision: int, at_rest: object) -> None:
                raise NoSpace("no space left")

            with monkeypatch.context() as patch:
                patch.setattr(cluster.store, "settle", refuse)
                await packing.pack(0)
            record = cluster.store.get("configmaps", "default/a")
            assert record is not None and not record.is_packed
            await packing.pack(0)
            record = cluster.store.get("configmaps", "default/a")
            assert record is not None and record.is_packed

    run_virtual(main())


def test_an_object_that_changes_while_those_at_rest_are_listed_is_not_missed() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CONFIG_MAPS, make("a", ""), "default")
            await pack(cluster)
            active = await cluster.view.list_active(CONFIG_MAPS, "default")
            resting = cluster.view.list_at_rest(CONFIG_MAPS)
            await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"x": "1"}}, "default")
            names = [item["metadata"]["name"] for item in active.items] + [name for _, _, name in resting]
            assert [name for name in names if not name.startswith("kube-")] == ["a"]

    run_virtual(main())
