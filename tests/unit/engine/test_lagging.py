"""On a cluster views lag and connections break: nobody decides on a past before his own writes, and nobody stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.engine.test_manager import make_config
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS
from trainmaster.api.status import StatusError
from trainmaster.apiserver.local import LocalClient
from trainmaster.client.view import ContentMissing, ContentUnavailable, View
from trainmaster.client.writes import Applied, Create, Patch, Version, Write, WriteRefusal, apply_in_order
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.timeline import Now
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


class Past:
    """A view that stands still at a revision until it is told to go on."""

    def __init__(self) -> None:
        self.revision = 1

    def shows(self, gvr: GVR, namespace: str, version: str) -> bool:
        return self.revision >= int(version)

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return None

    def list(self, gvr: GVR, namespace: str = "", labels: Any = None) -> Sequence[Object]:
        return ()

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return ()

    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        await asyncio.get_running_loop().create_future()


async def count_passes(past: Past, seconds: float, *, catch_up: float | None = None) -> list[float]:
    """When passes happened over an object whose first pass writes version 7."""
    clock = VirtualClock()
    times: list[float] = []

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        times.append(clock.monotonic())
        return NOTHING if len(times) > 1 else Plan((Create(CONFIG_MAPS, make_config("a")),), requeue_after=1.0)

    async def apply(writes: Sequence[Write], manager: str) -> Applied:
        return Applied(None, 0, (Version(CONFIG_MAPS, "default", "7"),))

    async with running_cluster(clock=clock) as cluster:
        controller = Controller("test", CONFIG_MAPS, reconcile, (ChangeSource(CONFIG_MAPS, map_to_self),), "test")
        recorder = EventRecorder(cluster.client, clock)
        manager = Manager([controller], view=past, feed=past, apply=apply, recorder=recorder, clock=clock)
        async with manager.running():
            manager.add("test", Request("default", "a"))
            if catch_up is not None:
                asyncio.get_running_loop().call_later(catch_up, setattr, past, "revision", 7)
            await clock.sleep(seconds)
    return times


def test_an_object_is_looked_at_again_only_when_the_view_shows_what_was_written() -> None:
    first, second = run_virtual(count_passes(Past(), 20, catch_up=5.0))
    assert first == 0
    assert 5.0 <= second < 12.0


def test_a_view_that_never_catches_up_does_not_stop_the_work_for_ever() -> None:
    first, second = run_virtual(count_passes(Past(), 200))
    assert first == 0
    assert 30.0 <= second <= 95.0


class Broken(LocalClient):
    """Writes arrive, their answers do not."""

    error: Exception = ConnectionError("cut")

    async def patch(self, *arguments: Any, **options: Any) -> Object:
        await super().patch(*arguments, **options)
        raise self.error

    async def create(self, *arguments: Any, **options: Any) -> Object:
        raise self.error


@pytest.mark.parametrize(
    "error", [ConnectionError("cut"), StatusError(504, "Timeout", "cut")], ids=["a broken connection", "a time-out"]
)
def test_after_a_lost_answer_the_view_has_to_show_what_the_object_is_now(error: Exception) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            client = Broken(cluster.registry)
            client.error = error
            patch = Patch(CONFIG_MAPS, "default", "a", {"data": {"x": "y"}})
            applied = await apply_in_order(client, [patch], field_manager="test")
            assert applied.refusal is not None
            assert applied.refusal.error.code >= 500
            now = await cluster.client.get(CONFIG_MAPS, "a", "default")
            assert applied.versions == ((CONFIG_MAPS, "default", now["metadata"]["resourceVersion"]),)

    run_virtual(main())


def test_what_was_written_before_a_refusal_counts_too() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            writes = [Create(CONFIG_MAPS, make_config("a")), Create(CONFIG_MAPS, make_config("a"))]
            applied = await apply_in_order(cluster.client, writes, field_manager="test")
            assert applied.refusal is not None
            assert applied.refusal.error.code == 409
            assert [version.gvr for version in applied.versions] == [CONFIG_MAPS]

    run_virtual(main())


def test_an_event_that_finds_no_server_is_lost_and_nothing_else() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            obj = await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            recorder = EventRecorder(Broken(cluster.registry), cluster.clock)
            await recorder.record(Note(obj, "Reason", "text"), "test")
            assert (await cluster.client.list(EVENTS, "default")).items == []

    run_virtual(main())


class Partial(Past):
    """A view that has the content of an object only after it was loaded, which fails at first."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.whole = self

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        if self.loads < 3:
            raise ContentMissing(gvr, namespace, name)
        return make_config(name)

    async def load(self, missing: ContentMissing) -> None:
        self.loads += 1
        if self.loads < 3:
            raise ContentUnavailable("the server is away")


def test_a_pass_that_lacks_a_content_begins_again_when_it_was_read() -> None:
    async def main() -> None:
        clock, view = VirtualClock(), Partial()
        seen: list[Object | None] = []

        def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
            seen.append(view.find(CONFIG_MAPS, request.namespace, request.name))
            return NOTHING

        async def apply(writes: Sequence[Write], manager: str) -> Applied:
            raise AssertionError("there is nothing to write")

        async with running_cluster(clock=clock) as cluster:
            controller = Controller("test", CONFIG_MAPS, reconcile, (ChangeSource(CONFIG_MAPS, map_to_self),), "test")
            recorder = EventRecorder(cluster.client, clock)
            manager = Manager([controller], view=view, feed=view, apply=apply, recorder=recorder, clock=clock)
            async with manager.running():
                manager.add("test", Request("default", "a"))
                await clock.sleep(60)
            assert seen == [make_config("a")] and view.loads == 3
            assert manager.find_trouble("test") == "", "a server that is away is no error of the controller"

    run_virtual(main())
