"""Following one kind, alone and together: everything that exists, then every change; after a gap everything again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from tests.unit.client.fake import FakeClient, ScriptedWatch, make_object
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ObjectList, WatchEvent
from trainmaster.client.follow import SharesFollows, follow
from trainmaster.kit.scopes import Scope
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

FORBIDDEN = StatusError(403, "Forbidden", "no")
BROKEN = StatusError(500, "InternalError", "broken")


class SharingFake(SharesFollows, FakeClient):
    def __init__(self) -> None:
        SharesFollows.__init__(self)
        FakeClient.__init__(self)


@dataclass
class Follower:
    seen: list[str] = field(default_factory=list)

    async def begin(self, items: list[Object]) -> None:
        self.seen.append("+".join(item["metadata"]["name"] for item in items))

    async def change(self, event: WatchEvent) -> None:
        self.seen.append(f"{event.type} {event.object['metadata']['name']}")

    def hear(self, error: StatusError | OSError) -> None:
        self.seen.append(str(error))
        if error is FORBIDDEN:
            raise error

    async def run(self, client: FakeClient, selector: str = "") -> None:
        await follow(client, VirtualClock(), PODS, self.begin, self.change, label_selector=selector, trouble=self.hear)


def prepare(client: FakeClient) -> None:
    client.lists = [
        ObjectList([make_object("a", 1)], "1"),
        BROKEN,
        ObjectList([make_object("b", 2), make_object("c", 4)], "4"),
    ]
    events = [WatchEvent("ADDED", make_object("b", 2)), WatchEvent("DELETED", make_object("a", 3))]
    client.watches = [ScriptedWatch(events, BROKEN)]


def test_after_a_gap_everything_is_listed_again() -> None:
    async def main() -> None:
        client, follower = FakeClient(), Follower()
        prepare(client)
        async with Scope("test") as scope:
            scope.spawn(follower.run(client), name="follower")
            await asyncio.sleep(10)
        assert follower.seen == ["a", "ADDED b", "DELETED a", "broken", "broken", "b+c"]

    run_virtual(main())


def test_followers_of_the_same_share_one_list_and_one_watch_and_who_comes_later_sees_what_there_is() -> None:
    async def main() -> None:
        client, followers = SharingFake(), [Follower() for _ in range(3)]
        prepare(client)
        async with Scope("test") as scope:
            for follower in followers[:2]:
                scope.spawn(follower.run(client), name="follower")
            await asyncio.sleep(10)
            scope.spawn(followers[2].run(client), name="late")
            await asyncio.sleep(10)
            assert (len(client.list_calls), len(client.watch_calls)) == (3, 2)
        for follower in followers[:2]:
            assert follower.seen == ["a", "ADDED b", "DELETED a", "broken", "broken", "b+c"]
        assert followers[2].seen == ["b+c"]

    run_virtual(main())


def test_when_the_one_who_watches_leaves_another_one_goes_on() -> None:
    async def main() -> None:
        client, first, second = SharingFake(), Follower(), Follower()
        client.lists = [ObjectList([make_object("a", 1)], "1"), ObjectList([make_object("b", 2)], "2")]
        async with Scope("test") as scope:
            leaving = scope.spawn(first.run(client), name="first")
            await asyncio.sleep(1)
            scope.spawn(second.run(client), name="second")
            await asyncio.sleep(1)
            leaving.cancel()
            await asyncio.sleep(1)
        assert (first.seen, second.seen) == (["a"], ["a", "b"])

    run_virtual(main())


def test_who_follows_something_else_has_a_watch_of_their_own() -> None:
    async def main() -> None:
        client, one, other = SharingFake(), Follower(), Follower()
        client.lists = [ObjectList([], "1"), ObjectList([make_object("a", 1)], "1")]
        async with Scope("test") as scope:
            scope.spawn(one.run(client), name="one")
            await asyncio.sleep(1)
            scope.spawn(other.run(client, "app=x"), name="other")
            await asyncio.sleep(1)
        assert (one.seen, other.seen) == ([""], ["a"])

    run_virtual(main())


def test_a_follower_that_gives_up_ends_alone() -> None:
    async def main() -> None:
        client, first = SharingFake(), Follower()
        client.lists = [FORBIDDEN, FORBIDDEN]
        with pytest.raises(StatusError):
            await first.run(client)
        with pytest.raises(StatusError):
            await first.run(client)

    run_virtual(main())
