"""Watches and pages at their limits: sharing, durability, bookmarks, expiry."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import Expired, StatusError
from trainmaster.apiserver.contract import Call
from trainmaster.client.contract import (
    ActingIdentity,
    DeleteOptions,
    ListOptions,
    PatchType,
    WatchOptions,
    WriteOptions,
)
from trainmaster.store.memory import MemoryStore
from trainmaster.store.state import WindowLimits
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

CONFIG_MAPS = GVR("", "v1", "configmaps")


async def create(cluster: Cluster, name: str, **metadata: object) -> Object:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return await cluster.client.create(CONFIG_MAPS, obj, "default")


def kind_of(cluster: Cluster):  # type: ignore[no-untyped-def]  # the Kind of config maps
    return cluster.registry.catalogue.find(CONFIG_MAPS)


def test_all_watchers_get_the_same_line() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            options = WatchOptions(resource_version=str(cluster.store.revision))
            watches = [cluster.registry.watch(kind_of(cluster), "default", options) for _ in range(3)]
            await create(cluster, "a")
            frames = [(await anext(watch))[0] for watch in watches]
            assert len({id(frame.line) for frame in frames}) == 1
            assert frames[0].line.startswith(b'{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap",')
            assert frames[0].line.endswith(b"}\n")
            for watch in watches:
                watch.close()

    run_virtual(main())


def test_outside_watchers_wait_for_the_commit() -> None:
    async def main() -> None:
        store = MemoryStore(manual=True)
        async with running_cluster(store=store) as cluster:
            store.commit()
            await create(cluster, "before")
            watch = cluster.registry.watch(kind_of(cluster), "default", WatchOptions(label_selector="x"))
            first = asyncio.get_running_loop().create_task(anext(watch))
            await asyncio.sleep(1)
            await create(cluster, "a", labels={"x": "1"})
            await asyncio.sleep(1)
            assert not first.done()
            store.commit()
            [frame] = await first
            assert frame.type == "ADDED"
            watch.close()

    run_virtual(main())


def test_bookmarks_come_every_minute_and_only_when_asked_for() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            start = str(cluster.store.revision)
            await create(cluster, "other-collection-moves-on")
            for bookmarks, want in ((True, ["BOOKMARK", "BOOKMARK"]), (False, [])):
                options = WatchOptions(
                    resource_version=start, bookmarks=bookmarks, timeout_seconds=150, label_selector="nothing"
                )
                async with cluster.client.watch(CONFIG_MAPS, "default", options) as watch:
                    events = [event async for event in watch]
                assert [event.type for event in events] == want
                for event in events:
                    assert event.object["metadata"] == {"resourceVersion": str(cluster.store.revision)}

    run_virtual(main())


def test_a_watch_from_before_the_window_is_expired() -> None:
    async def main() -> None:
        async with running_cluster(store=MemoryStore(WindowLimits(events=10))) as cluster:
            start = cluster.store.revision
            for number in range(40):
                await create(cluster, f"a{number}")
            with pytest.raises(Expired) as caught:
                async with cluster.client.watch(CONFIG_MAPS, "", WatchOptions(resource_version=str(start))):
                    pass
            assert caught.value.code == 410
            assert caught.value.message.startswith(f"too old resource version: {start} (")

    run_virtual(main())


def test_a_watcher_that_falls_behind_is_told_to_list_again() -> None:
    async def main() -> None:
        async with running_cluster(store=MemoryStore(WindowLimits(events=10))) as cluster:
            options = WatchOptions(resource_version=str(cluster.store.revision))
            async with cluster.client.watch(CONFIG_MAPS, "default", options) as watch:
                for number in range(40):
                    await create(cluster, f"a{number}")
                with pytest.raises(Expired):
                    while True:
                        await anext(watch)

    run_virtual(main())


def test_a_continue_token_expires_with_the_window() -> None:
    async def main() -> None:
        async with running_cluster(store=MemoryStore(WindowLimits(events=10))) as cluster:
            for number in range(5):
                await create(cluster, f"a{number}")
            page = await cluster.client.list(CONFIG_MAPS, "default", ListOptions(limit=2))
            for number in range(40):
                await create(cluster, f"b{number}")
            with pytest.raises(Expired) as caught:
                await cluster.client.list(
                    CONFIG_MAPS, "default", ListOptions(limit=2, continue_token=page.continue_token)
                )
            assert caught.value.code == 410
            assert caught.value.message.startswith("The provided continue parameter is too old")

    run_virtual(main())


@pytest.mark.parametrize("token", ["abc", "eyJ4IjoxfQ", "WzFd", "%%%", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTF9"])
def test_a_broken_token_is_a_bad_request(token: str) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            with pytest.raises(StatusError) as caught:
                await cluster.client.list(CONFIG_MAPS, "default", ListOptions(limit=2, continue_token=token))
            assert caught.value.code == 400
            assert caught.value.message.startswith("invalid continue token: continue key is not valid: ")

    run_virtual(main())


def test_a_long_selection_lets_others_run_between_slices() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            for number in range(1200):
                await create(cluster, f"a{number}", labels={"even": str(number % 2 == 0)})
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            other = asyncio.get_running_loop().create_task(count())
            found = await cluster.client.list(CONFIG_MAPS, "default", ListOptions("even=True"))
            other.cancel()
            assert len(found.items) == 600
            assert turns >= 2

    run_virtual(main())


def test_a_selection_is_deleted_although_part_of_it_goes_meanwhile() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            for name in ("a", "b"):
                await create(cluster, name, labels={"x": "1"})
            page = await cluster.registry.list(kind_of(cluster), "default", ListOptions("x"))
            assert len(page.values) == 2
            deleted = await cluster.client.delete_collection(
                CONFIG_MAPS, "default", ListOptions("x"), DeleteOptions("Background")
            )
            assert [item["metadata"]["name"] for item in deleted] == ["a", "b"]

    run_virtual(main())


def test_force_belongs_to_apply_alone() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await create(cluster, "a")
            with pytest.raises(StatusError) as caught:
                await cluster.client.patch(
                    CONFIG_MAPS, "a", PatchType.MERGE, {}, "default", options=WriteOptions(force=True)
                )
            assert caught.value.message == (
                'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'
            )

    run_virtual(main())


def test_a_name_in_the_path_must_be_that_of_the_body() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await create(cluster, "a")
            call = Call(ActingIdentity("u"))
            for metadata, message in (
                ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
                ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
            ):
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                with pytest.raises(StatusError) as caught:
                    cluster.registry.update(call, kind_of(cluster), "default", "a", body, WriteOptions())
                assert (caught.value.code, caught.value.message) == (400, message)

    run_virtual(main())
