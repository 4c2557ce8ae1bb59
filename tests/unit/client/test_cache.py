"""The watch cache: current after every event, right again after every gap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.client.fake import FakeClient, ScriptedWatch, make_object
from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import ListOptions, ObjectList, WatchEvent
from trainmaster.client.reflector import WatchHabit
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

PODS = GVR("", "v1", "pods")


def run(client: FakeClient, check: Callable[[WatchCache], Awaitable[None]]) -> None:
    async def body() -> None:
        async with WatchCache(client, [PODS], clock=VirtualClock()) as cache:
            await cache.wait_synced()
            await check(cache)

    run_virtual(body())


def names(objects: object) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]  # type: ignore[attr-defined]  # a sequence of objects


def test_it_lists_then_follows_the_watch_from_the_lists_version() -> None:
    client = FakeClient()
    client.lists = [ObjectList([make_object("p", 3)], "10")]
    events = [
        WatchEvent("ADDED", make_object("q", 11, x="y")),
        WatchEvent("MODIFIED", make_object("p", 12, x="y")),
        WatchEvent("DELETED", make_object("q", 13)),
        WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
    ]
    client.watches = [ScriptedWatch(events, hang=True)]

    async def check(cache: WatchCache) -> None:
        await settle()
        assert names(cache.list(PODS)) == ["p"] and cache.resource_version(PODS) == "20"
        assert names(cache.list(PODS, "a", {"x": "y"})) == ["p"]
        assert cache.list(PODS, "b") == [] and cache.list(PODS, "a", {"x": "z"}) == []
        assert cache.find(PODS, "a", "q") is None
        assert client.watch_calls[0].resource_version == "10" and client.watch_calls[0].bookmarks

    run(client, check)


def test_a_watch_that_ends_is_resumed_without_a_list() -> None:
    client = FakeClient()
    client.lists = [ObjectList([], "10")]
    client.watches = [ScriptedWatch([WatchEvent("ADDED", make_object("p", 11))]), ScriptedWatch([], hang=True)]

    async def check(cache: WatchCache) -> None:
        await settle()
        assert [call.resource_version for call in client.watch_calls] == ["10", "11"]
        assert len(client.list_calls) == 1

    run(client, check)


def test_after_410_it_lists_again_and_reports_what_went_and_what_changed() -> None:
    client = FakeClient()
    client.lists = [
        ObjectList([make_object("gone", 1), make_object("same", 2), make_object("changed", 3)], "10"),
        ObjectList([make_object("same", 2), make_object("changed", 30), make_object("new", 31)], "40"),
    ]
    client.watches = [ScriptedWatch([], status.too_old(10, 35))]
    heard: list[str] = []

    async def check(cache: WatchCache) -> None:
        follower = asyncio.get_running_loop().create_task(
            cache.follow(PODS, lambda obj: heard.append(obj["metadata"]["name"]))
        )
        await settle(5)
        assert heard[:3] == ["changed", "gone", "same"]
        await asyncio.sleep(5)
        assert heard[3:] == ["gone", "changed", "new"]
        assert names(cache.list(PODS)) == ["changed", "new", "same"]
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)

    run(client, check)


def test_pages_are_put_together_and_an_expired_page_starts_over() -> None:
    client = FakeClient()
    client.lists = [
        ObjectList([make_object("p", 1)], "10", "next"),
        status.continue_expired(),
        ObjectList([make_object("p", 1), make_object("q", 2)], "12"),
    ]

    async def check(cache: WatchCache) -> None:
        assert names(cache.list(PODS)) == ["p", "q"] and cache.resource_version(PODS) == "12"
        assert [(call.limit, call.continue_token) for call in client.list_calls] == [(200, ""), (200, "next"), (0, "")]

    run(client, check)


def test_an_unreachable_server_is_asked_again_with_growing_pauses() -> None:
    client = FakeClient()
    client.lists = [status.unavailable("down"), OSError("reset"), ObjectList([make_object("p", 1)], "10")]

    async def check(cache: WatchCache) -> None:
        assert names(cache.list(PODS)) == ["p"]

    run(client, check)


def test_objects_are_found_by_their_controller_and_the_index_follows_changes() -> None:
    client = FakeClient()
    client.lists = [ObjectList([make_object("p", 1, owner="u1"), make_object("q", 2, owner="u1")], "10")]
    moved: Object = make_object("p", 11, owner="u2")
    client.watches = [ScriptedWatch([WatchEvent("MODIFIED", moved)], hang=True)]

    async def check(cache: WatchCache) -> None:
        await settle()
        assert names(cache.owned(PODS, "a", "u1")) == ["q"] and names(cache.owned(PODS, "a", "u2")) == ["p"]
        assert list(cache.owned(PODS, "a", "nobody")) == []
        assert list(cache.owned(PODS, "elsewhere", "u1")) == []

    run(client, check)


@pytest.mark.parametrize("error", [status.not_found(PODS, ""), status.StatusError(403, "Forbidden", "no")])
def test_an_optional_kind_that_cannot_be_read_is_empty_until_it_can(error: status.StatusError) -> None:
    client = FakeClient()
    client.lists = [error, ObjectList([make_object("p", 1)], "10")]

    async def body() -> None:
        async with WatchCache(client, [PODS], clock=VirtualClock(), optional=[PODS]) as cache:
            await cache.wait_synced()
            assert cache.list(PODS) == []
            await asyncio.sleep(1)
            assert names(cache.list(PODS)) == ["p"]

    run_virtual(body())


def test_a_kind_that_everything_needs_is_waited_for() -> None:
    client = FakeClient()
    client.lists = [status.not_found(PODS, ""), status.not_found(PODS, ""), ObjectList([make_object("p", 1)], "10")]

    async def check(cache: WatchCache) -> None:
        assert names(cache.list(PODS)) == ["p"] and len(client.list_calls) == 3

    run(client, check)


def test_in_one_namespace_cluster_scoped_kinds_are_followed_as_a_whole() -> None:
    nodes = GVR("", "v1", "nodes")
    asked: dict[GVR, str] = {}

    class Client(FakeClient):
        async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008
            asked[gvr] = namespace
            return ObjectList([], "1")

    async def body() -> None:
        cache = WatchCache(Client(), [PODS, nodes], clock=VirtualClock(), namespaces=["a"], cluster_scoped=[nodes])
        async with cache:
            await cache.wait_synced()

    run_virtual(body())
    assert asked == {PODS: "a", nodes: ""}


def test_of_a_kind_with_a_selector_only_that_part_is_listed_and_watched() -> None:
    asked = list[str]()

    class Client(FakeClient):
        async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008
            asked.append(options.label_selector)
            return ObjectList([], "1")

    async def body() -> None:
        client = Client()
        client.watches = [ScriptedWatch([], hang=True)]
        async with WatchCache(client, [PODS], clock=VirtualClock(), habits={PODS: WatchHabit("x")}) as cache:
            await cache.wait_synced()
            await settle()
            asked.extend(options.label_selector for options in client.watch_calls)

    run_virtual(body())
    assert asked == ["x", "x"]


def test_only_the_slim_part_of_an_object_is_kept() -> None:
    client = FakeClient()
    client.lists = [ObjectList([{**make_object("p", 1), "spec": {"much": True}}], "10")]
    client.watches = [ScriptedWatch([WatchEvent("ADDED", {**make_object("q", 11), "spec": {}})], hang=True)]

    async def body() -> None:
        def slim(obj: Object) -> Object:
            return {"metadata": obj["metadata"]}

        async with WatchCache(client, [PODS], clock=VirtualClock(), slim={PODS: slim}) as cache:
            await cache.wait_synced()
            await settle()
            assert names(cache.list(PODS)) == ["p", "q"]
            assert all("spec" not in obj for obj in cache.list(PODS))

    run_virtual(body())


def test_a_connection_that_died_silently_is_given_up() -> None:
    client = FakeClient()
    client.lists = [ObjectList([], "10")]
    client.watches = [
        ScriptedWatch([], hang=True),
        ScriptedWatch([WatchEvent("ADDED", make_object("p", 11))], hang=True),
    ]

    async def check(cache: WatchCache) -> None:
        await asyncio.sleep(400)
        assert names(cache.list(PODS)) == ["p"]

    run(client, check)


def test_a_watch_that_was_quiet_until_it_ended_is_resumed_at_once() -> None:
    """However many of them there were before: a quiet kind must not be noticed late because it was quiet."""
    client = FakeClient()
    client.lists = [ObjectList([], "10")]
    client.watches = [ScriptedWatch([], seconds=80.0) for _ in range(12)]

    async def check(cache: WatchCache) -> None:
        await asyncio.sleep(12 * 80.0 + 0.5)
        assert len(client.watch_calls) == 13 and len(client.list_calls) == 1

    run(client, check)


def test_a_watch_that_is_ended_immediately_is_begun_less_and_less_often() -> None:
    client = FakeClient()
    client.lists = [ObjectList([], "10")]
    client.watches = [ScriptedWatch([]) for _ in range(100)]

    async def check(cache: WatchCache) -> None:
        await asyncio.sleep(60.0)
        assert 5 <= len(client.watch_calls) <= 12 and len(client.list_calls) == 1

    run(client, check)


def test_a_silent_watch_is_begun_anew_where_it_was() -> None:
    """The machine of its server died behind a load balancer, which keeps the connection open."""
    client = FakeClient()
    client.lists = [ObjectList([], "10")]
    client.watches = [
        ScriptedWatch([WatchEvent("ADDED", make_object("p", 11))], hang=True),
        ScriptedWatch([WatchEvent("ADDED", make_object("q", 12))], hang=True),
    ]

    async def check(cache: WatchCache) -> None:
        await asyncio.sleep(100.0)
        assert names(cache.list(PODS)) == ["p", "q"]
        assert [call.resource_version for call in client.watch_calls] == ["10", "11"]
        assert len(client.list_calls) == 1

    run(client, check)
