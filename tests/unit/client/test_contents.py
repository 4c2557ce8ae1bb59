"""A watch cache that follows metadata: contents are read by name, once, when they are needed; never a wrong one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.client.fake import FakeClient, ScriptedWatch
from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.cache import WatchCache
from trainmaster.client.cached import CachedObjects
from trainmaster.client.contract import ListOptions, ObjectList, WatchEvent
from trainmaster.client.view import ContentUnavailable, View, ask_whole
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

MAPS = GVR("", "v1", "configmaps")


def make_partial(name: str, version: int, uid: str = "") -> Object:
    meta = {"name": name, "namespace": "a", "resourceVersion": str(version), "uid": uid or f"uid-{name}"}
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta}


def make_whole(name: str, version: int, text: str, uid: str = "") -> Object:
    return {**make_partial(name, version, uid), "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": text}}


def is_ours(obj: Object) -> bool:
    return str(obj["metadata"]["name"]).startswith("ours")


class Server(FakeClient):
    """Counts what is read by name."""

    def __init__(self, *events: WatchEvent) -> None:
        super().__init__()
        self.lists = [ObjectList([make_partial("ours", 1), make_partial("theirs", 2)], "10")]
        self.watches = [ScriptedWatch(events, hang=True)]
        self.read: list[str] = []
        self.error: StatusError | None = None

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        self.read.append(name)
        if self.error is not None:
            raise self.error
        return await super().get(gvr, name, namespace)


def run(server: Server, check: Callable[[WatchCache], Awaitable[None]]) -> None:
    async def body() -> None:
        async with WatchCache(server, [MAPS], clock=VirtualClock(), contents={MAPS: is_ours}) as cache:
            await cache.wait_synced()
            await settle()
            await check(cache)

    run_virtual(body())


async def read(cache: WatchCache, name: str = "ours") -> Any:
    def question(view: View) -> Any:
        found = view.find(MAPS, "a", name)
        return None if found is None else found.get("data", {}).get("text", "no content")

    return await ask_whole(cache, question)


def test_only_metadata_is_followed_and_our_content_is_read_once_by_name() -> None:
    server = Server()
    server.stored["a", "ours"] = make_whole("ours", 1, "x")

    async def check(cache: WatchCache) -> None:
        assert server.list_calls[0].metadata_only and server.watch_calls[0].metadata_only
        assert [await read(cache), await read(cache)] == ["x", "x"]
        assert await read(cache, "theirs") == "no content"
        assert server.read == ["ours"]

    run(server, check)


def test_a_change_makes_the_content_unknown_and_its_echo_does_not() -> None:
    events = [WatchEvent("MODIFIED", make_partial("ours", version)) for version in (11, 12)]
    server = Server(*events[:1])
    server.stored["a", "ours"] = make_whole("ours", 12, "newer")

    async def check(cache: WatchCache) -> None:
        assert await read(cache) == "newer", "read before the watch reports it"
        collection = cache._collections[MAPS]
        collection.put(events[1].object)
        assert await read(cache) == "newer" and server.read == ["ours"]
        collection.put(make_partial("ours", 13))
        server.stored["a", "ours"] = make_whole("ours", 13, "newest")
        assert await read(cache) == "newest" and server.read == ["ours", "ours"]

    run(server, check)


def test_what_was_written_is_known_without_reading_it() -> None:
    server = Server()

    async def check(cache: WatchCache) -> None:
        cache.learn(MAPS, make_whole("ours-too", 11, "written"))
        assert await read(cache, "ours-too") == "written" and server.read == []
        cache.learn(MAPS, make_whole("ours-late", 9, "deleted meanwhile"))
        assert await read(cache, "ours-late") is None, "the watch has passed it: it may be gone"
        cache.learn(MAPS, make_whole("ours", 1, "answered late"))
        assert await read(cache) == "answered late"

    run(server, check)


def test_an_object_that_is_gone_is_gone_for_the_pass_too() -> None:
    server = Server()

    async def check(cache: WatchCache) -> None:
        assert await read(cache) is None and server.read == ["ours"]

    run(server, check)


def test_a_content_that_cannot_be_read_ends_the_pass_with_the_reason() -> None:
    server = Server()
    server.error = StatusError(503, "ServiceUnavailable", "away")

    async def check(cache: WatchCache) -> None:
        with pytest.raises(ContentUnavailable, match="configmaps a/ours cannot be read: away"):
            await read(cache)

    run(server, check)


def test_several_namespaces_are_listed_and_watched_each_for_itself() -> None:
    asked: list[str] = []

    class Client(FakeClient):
        async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008
            asked.append(namespace)
            found = make_partial("x", 5)
            found["metadata"]["namespace"] = namespace
            return ObjectList([found], {"a": "10", "b": "20"}[namespace])

    async def body() -> None:
        client = Client()
        async with WatchCache(client, [MAPS], clock=VirtualClock(), namespaces=("a", "b")) as cache:
            await cache.wait_synced()
            assert sorted(asked) == ["a", "b"]
            assert [obj["metadata"]["namespace"] for obj in cache.list(MAPS)] == ["a", "b"]
            assert cache.shows(MAPS, "b", "15") and not cache.shows(MAPS, "a", "15")
            assert cache.shows(MAPS, "elsewhere", "99"), "nobody waits for what is not followed"

    run_virtual(body())


def test_whoever_follows_through_the_cache_sees_what_was_deleted_and_made_anew() -> None:
    server = Server()
    again = make_partial("ours", 30, uid="another")
    server.watches = [ScriptedWatch([WatchEvent("DELETED", make_partial("theirs", 11))], status.too_old(1, 2))]
    server.lists.append(ObjectList([again], "40"))

    async def body() -> None:
        async with WatchCache(server, [MAPS], clock=VirtualClock()) as cache:
            source = CachedObjects(cache)
            assert len((await source.list(MAPS)).items) == 2
            seen = []
            async with source.watch(MAPS) as watch:
                for _ in range(3):
                    event = await anext(watch)
                    seen.append((event.type, event.object["metadata"]["name"], event.object["metadata"]["uid"]))
            assert seen == [
                ("DELETED", "theirs", "uid-theirs"),
                ("DELETED", "ours", "uid-ours"),
                ("MODIFIED", "ours", "another"),
            ]

    run_virtual(body())
