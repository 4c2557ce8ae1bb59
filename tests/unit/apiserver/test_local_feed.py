"""The view as the controllers' feed: everything once at first, then every change, never ahead of the view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, SECRETS
from trainmaster.client.contract import PatchType
from trainmaster.client.view import View
from trainmaster.client.writes import Create, WriteRefusal
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.scopes import Scope
from trainmaster.kit.timeline import Now
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def make_config(name: str) -> Object:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1"}}


def test_a_follower_hears_of_what_exists_and_of_each_change_that_the_view_shows() -> None:
    async def main() -> None:
        async with running_cluster() as cluster, Scope("test") as scope:
            await cluster.client.create(CONFIG_MAPS, make_config("old"), "default")
            heard: list[tuple[str, bool]] = []

            def notice(obj: Object) -> None:
                meta = obj["metadata"]
                shown = cluster.view.find(CONFIG_MAPS, meta["namespace"], meta["name"])
                if meta["namespace"] == "default" and not meta["name"].startswith("kube-"):
                    heard.append((meta["name"], shown is not None))

            task = scope.spawn(cluster.view.follow(CONFIG_MAPS, notice), name="follow")
            await asyncio.sleep(1)
            assert heard == [("old", True)]
            cluster.client.apply_atomically(
                [Create(CONFIG_MAPS, make_config("b")), Create(CONFIG_MAPS, make_config("c"))], field_manager="test"
            )
            patch = {"data": {"a": "2"}}
            await cluster.client.patch(CONFIG_MAPS, "b", PatchType.MERGE, patch, "default")
            await cluster.client.delete(CONFIG_MAPS, "b", "default")
            assert heard[1:] == [("b", True), ("c", True), ("b", True), ("b", False)]
            task.cancel()
            await asyncio.sleep(0)
            await cluster.client.delete(CONFIG_MAPS, "c", "default")
            assert len(heard) == 5, "who has left hears nothing"

    run_virtual(main())


def test_an_error_of_a_follower_is_raised_to_it_and_not_to_the_writer() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:

            def refuse(obj: Object) -> None:
                if obj["metadata"]["name"] == "bad":
                    raise ValueError("a mapper's bug")

            async def follow(cluster: Cluster) -> None:
                await cluster.view.follow(SECRETS, refuse)

            following = asyncio.ensure_future(follow(cluster))
            await asyncio.sleep(0.1)
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad", "namespace": "default"}}
            await cluster.client.create(SECRETS, secret, "default")
            with pytest.raises(ValueError, match="a mapper's bug"):
                await following

    run_virtual(main())


class SlowClock(VirtualClock):
    """Time passes during a pass, as it does for a large object."""

    spent = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.spent


@pytest.mark.parametrize(("seconds", "passes"), [(0.0, 21), (0.1, 3)], ids=["a quick pass", "a slow pass"])
def test_an_object_rests_after_a_look_that_took_long(seconds: float, passes: int) -> None:
    async def main() -> None:
        clock, looks = SlowClock(), []

        def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
            if request.name == "large":
                looks.append(request)
                clock.spent += seconds
            return NOTHING

        async with running_cluster(clock=clock) as cluster:
            controller = Controller("test", CONFIG_MAPS, reconcile, (ChangeSource(CONFIG_MAPS, map_to_self),), "test")
            manager = Manager(
                [controller],
                view=cluster.view,
                feed=cluster.view,
                apply=apply_in_one(cluster.client),
                recorder=EventRecorder(cluster.client, clock),
                clock=clock,
            )
            async with manager.running():
                await cluster.client.create(CONFIG_MAPS, make_config("large"), "default")
                for number in range(20):
                    await asyncio.sleep(0.02)
                    patch = {"data": {"a": str(number + 10)}}
                    await cluster.client.patch(CONFIG_MAPS, "large", PatchType.MERGE, patch, "default")
                await asyncio.sleep(2)
                assert manager.is_idle
        assert len(looks) == passes, "gathered into few, and the last change is seen"

    run_virtual(main())
