"""The in-process client: plans as one transaction, acting as somebody else, durability."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import ActingIdentity, PatchType, WatchOptions, WriteOptions
from trainmaster.client.writes import Create, Delete, Patch
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

CONFIG_MAPS = GVR("", "v1", "configmaps")
PODS = GVR("", "v1", "pods")


def make(name: str, **metadata: object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", **metadata}}


def test_a_plan_is_kept_whole() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            before = cluster.store.revision
            applied = cluster.client.apply_atomically(
                [
                    Create(CONFIG_MAPS, make("a")),
                    Patch(CONFIG_MAPS, "default", "a", {"data": {"k": "v"}}),
                    Create(CONFIG_MAPS, make("b")),
                    Delete(CONFIG_MAPS, "default", "b"),
                ],
                field_manager="plan",
            )
            assert applied.refusal is None
            assert applied.revision == cluster.store.revision == before + 4
            assert (await cluster.client.get(CONFIG_MAPS, "a", "default"))["data"] == {"k": "v"}

    run_virtual(main())


def test_a_refused_write_undoes_the_whole_plan_and_is_reported() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            before = cluster.store.revision
            refused = Create(CONFIG_MAPS, make("Bad_Name"))
            applied = cluster.client.apply_atomically([Create(CONFIG_MAPS, make("a")), refused], field_manager="plan")
            assert applied.refusal is not None
            assert applied.refusal.write is refused
            assert applied.refusal.error.reason == "Invalid"
            assert cluster.store.revision == before
            with pytest.raises(NotFound):
                await cluster.client.get(CONFIG_MAPS, "a", "default")

    run_virtual(main())


def test_a_plan_is_seen_by_watchers_together() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            start = str(cluster.store.revision)
            async with cluster.client.watch(CONFIG_MAPS, "default", WatchOptions(resource_version=start)) as watch:
                cluster.client.apply_atomically(
                    [Create(CONFIG_MAPS, make(name)) for name in ("a", "b")], field_manager="plan"
                )
                assert [(await anext(watch)).object["metadata"]["name"] for _ in range(2)] == ["a", "b"]

    run_virtual(main())


def test_writes_of_plans_are_not_recorded_in_managed_fields_and_leave_those_of_others() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            cluster.client.apply_atomically([Create(CONFIG_MAPS, make("a"))], field_manager="plan")
            made = await cluster.client.get(CONFIG_MAPS, "a", "default")
            assert "managedFields" not in made["metadata"]
            options = WriteOptions(field_manager="person")
            obj = {**make("b"), "data": {"k": "v"}}
            tracked = await cluster.client.create(CONFIG_MAPS, obj, "default", options=options)
            patch = Patch(CONFIG_MAPS, "default", "b", {"data": {"l": "w"}})
            cluster.client.apply_atomically([patch], field_manager="plan")
            after = await cluster.client.get(CONFIG_MAPS, "b", "default")
            assert after["metadata"]["managedFields"] == tracked["metadata"]["managedFields"]

    run_virtual(main())


def test_an_empty_plan_writes_nothing() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            before = cluster.store.revision
            applied = cluster.client.apply_atomically([], field_manager="plan")
            assert (applied.refusal, applied.revision, cluster.store.revision) == (None, 0, before)

    run_virtual(main())


class OnlyReads:
    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        return verb == "get" and (group, resource, namespace) == ("", "configmaps", "default")


def test_acting_as_somebody_is_authorized() -> None:
    async def main() -> None:
        async with running_cluster(authorizer=OnlyReads()) as cluster:
            await cluster.client.create(CONFIG_MAPS, make("a"), "default")
            user = cluster.client.as_user(ActingIdentity("jane"))
            assert (await user.get(CONFIG_MAPS, "a", "default"))["metadata"]["name"] == "a"
            with pytest.raises(StatusError) as caught:
                await user.create(CONFIG_MAPS, make("b"), "default")
            assert caught.value.code == 403
            assert caught.value.message == (
                'configmaps is forbidden: User "jane" cannot create resource "configmaps" in API group "" in the '
                'namespace "default"'
            )
            with pytest.raises(StatusError) as caught:
                await user.patch(PODS, "p", PatchType.MERGE, {}, "default", subresource="status")
            assert 'cannot patch resource "pods/status" in API group ""' in caught.value.message

    run_virtual(main())


def test_nobody_may_act_as_somebody_without_an_authorizer() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            with pytest.raises(StatusError) as caught:
                await cluster.client.as_user(ActingIdentity("jane")).get(CONFIG_MAPS, "a", "default")
            assert caught.value.code == 403

    run_virtual(main())


def test_a_write_is_visible_before_it_is_durable() -> None:
    async def main() -> None:
        store = MemoryStore(manual=True)
        async with running_cluster(store=store) as cluster:
            made = await cluster.client.create(CONFIG_MAPS, make("a"), "default")
            revision = int(made["metadata"]["resourceVersion"])
            assert await cluster.client.get(CONFIG_MAPS, "a", "default") == made
            waiting = asyncio.get_running_loop().create_task(cluster.client.durable(revision))
            await asyncio.sleep(1)
            assert not waiting.done()
            store.commit()
            await waiting

    run_virtual(main())


def test_what_the_caller_holds_is_its_own() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            given = {**make("a"), "data": {"k": "v"}}
            made = await cluster.client.create(CONFIG_MAPS, given, "default")
            assert "uid" not in given["metadata"]
            made["data"]["k"] = given["data"]["k"] = "changed"
            assert (await cluster.client.get(CONFIG_MAPS, "a", "default"))["data"] == {"k": "v"}

    run_virtual(main())


@pytest.mark.parametrize("read_only", [False, True])
def test_who_only_reads_shares_the_answer_to_a_patch_and_others_do_not(read_only: bool) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CONFIG_MAPS, make("a"), "default")
            options, patch = WriteOptions(read_only=read_only), {"data": {"k": "v"}}
            answer = await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, "default", options=options)
            assert answer["data"] == {"k": "v"}
            assert (answer is cluster.view.find(CONFIG_MAPS, "default", "a")) is read_only
            tried = WriteOptions(read_only=read_only, dry_run=True)
            answer = await cluster.client.patch(
                CONFIG_MAPS, "a", PatchType.MERGE, {"data": None}, "default", options=tried
            )
            assert "data" not in answer, "nothing was stored"

    run_virtual(main())


@pytest.mark.parametrize("read_only", [False, True])
def test_who_only_reads_shares_what_a_watch_brings_and_others_do_not(read_only: bool) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            options = WatchOptions(resource_version=str(cluster.store.revision), read_only=read_only)
            async with cluster.client.watch(CONFIG_MAPS, "default", options) as events:
                config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}}
                await cluster.client.create(CONFIG_MAPS, config, "default")
                seen = await anext(events)
                kept = cluster.view.find(CONFIG_MAPS, "default", "a")
                assert seen.object == kept
                assert (seen.object is kept) is read_only
                await cluster.client.delete(CONFIG_MAPS, "a", "default")
                gone = await anext(events)
                assert gone.type == "DELETED" and gone.object["data"] == {"x": "y"}

    run_virtual(main())
