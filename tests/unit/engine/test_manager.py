"""The manager: plans are carried out, refusals come back as data, and nothing loops without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Patch, WriteRefusal
from trainmaster.engine.apply import apply_in_one, apply_one_by_one
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.feed import WatchFeed
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import NOTHING, Note, Plan, Reconcile
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.timeline import Now
from trainmaster.store.contract import NoSpace
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def make_config(name: str, **data: str) -> Object:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@asynccontextmanager
async def running(reconcile: Reconcile, *, in_order: bool = False) -> AsyncIterator[tuple[Cluster, Metrics]]:
    async with running_cluster() as cluster:
        metrics = Metrics()
        controller = Controller(
            "test", CONFIG_MAPS, reconcile, (ChangeSource(CONFIG_MAPS, map_to_self),), "test-controller"
        )
        apply = apply_one_by_one(cluster.client) if in_order else apply_in_one(cluster.client)
        manager = Manager(
            [controller],
            view=cluster.view,
            feed=WatchFeed(cluster.client, cluster.clock),
            apply=apply,
            recorder=EventRecorder(cluster.client, cluster.clock),
            clock=cluster.clock,
            metrics=metrics,
        )
        async with manager.running():
            yield cluster, metrics


def only(name: str) -> Request:
    return Request("default", name)


def count(metrics: Metrics, result: str) -> int:
    for line in metrics.render().splitlines():
        if line.startswith(f'trainmaster_reconcile_total{{controller="test",result="{result}"}}'):
            return int(line.rpartition(" ")[2])
    return 0


def test_a_source_of_owned_objects_hears_of_its_own_kind_and_of_orphans() -> None:
    asked: list[tuple[str, str]] = []
    policies: list[tuple[str, str]] = []

    def build(kind: str) -> Controller:
        def map_child(view: View, obj: Object) -> Sequence[Request]:
            asked.append((kind, obj["metadata"]["name"]))
            return ()

        def map_policy(view: View, obj: Object) -> Sequence[Request]:
            policies.append((kind, obj["metadata"]["name"]))
            return ()

        def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
            return NOTHING

        sources = (
            ChangeSource(CONFIG_MAPS, map_child, owner=kind),
            ChangeSource(CONFIG_MAPS, map_policy, only=Request("default", "policy")),
        )
        return Controller(kind, CONFIG_MAPS, reconcile, sources, kind)

    def make_owned(name: str, kind: str, **fields: bool) -> Object:
        reference = {"apiVersion": "example.com/v1", "kind": kind, "name": "o", "uid": "u", **fields}
        config = make_config(name)
        config["metadata"]["ownerReferences"] = [reference]
        return config

    async def main() -> None:
        async with running_cluster() as cluster:
            feed = WatchFeed(cluster.client, cluster.clock)
            recorder = EventRecorder(cluster.client, cluster.clock)
            manager = Manager(
                [build("A"), build("B")],
                view=cluster.view,
                feed=feed,
                apply=apply_in_one(cluster.client),
                recorder=recorder,
                clock=cluster.clock,
            )
            async with manager.running():
                for config in (
                    make_owned("of-a", "A", controller=True),
                    make_owned("of-c", "C", controller=True),
                    make_owned("not-controlled", "A"),
                    make_config("orphan"),
                    make_config("policy"),
                ):
                    await cluster.client.create(CONFIG_MAPS, config, "default")
                await asyncio.sleep(1)

    run_virtual(main())
    ours = {"of-a", "of-c", "not-controlled", "orphan", "policy"}
    assert {name for kind, name in asked if kind == "A"} & ours == {"of-a", "not-controlled", "orphan", "policy"}
    assert {name for kind, name in asked if kind == "B"} & ours == {"not-controlled", "orphan", "policy"}
    assert set(policies) == {("A", "policy"), ("B", "policy")}


@pytest.mark.parametrize("in_order", [False, True], ids=["as one transaction", "in order"])
def test_a_plan_is_carried_out_and_its_events_follow(in_order: bool) -> None:
    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        obj = view.find(CONFIG_MAPS, request.namespace, request.name)
        if obj is None or request != only("a") or view.find(CONFIG_MAPS, "default", "b") is not None:
            return NOTHING
        note = Note(obj, "Made", "made b")
        patch = Patch(CONFIG_MAPS, "default", "a", {"data": {"seen": "yes"}})
        return Plan((Create(CONFIG_MAPS, make_config("b")), patch), None, (note,))

    async def main() -> None:
        async with running(reconcile, in_order=in_order) as (cluster, metrics):
            await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            await asyncio.sleep(1)
            assert (await cluster.client.get(CONFIG_MAPS, "a", "default"))["data"] == {"seen": "yes"}
            events = (await cluster.client.list(EVENTS, "default")).items
            assert [(event["reason"], event["involvedObject"]["name"]) for event in events] == [("Made", "a")]
            assert events[0]["firstTimestamp"]
            assert 'trainmaster_reconcile_writes_total{controller="test"} 2' in metrics.render()

    run_virtual(main(), limit=60)


def test_a_refusal_comes_back_as_data_and_is_tried_again_with_pauses() -> None:
    seen: list[str] = []

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        if request != only("a"):
            return NOTHING
        if refusals:
            seen.append(refusals[0].error.reason)
            known = view.find(CONFIG_MAPS, "default", "a")
            if known is not None and (known.get("data") or {}).get("why"):
                return NOTHING
            patch = Patch(CONFIG_MAPS, "default", "a", {"data": {"why": refusals[0].error.message[:40]}})
            return Plan((patch,))
        return Plan((Create(CONFIG_MAPS, make_config("b")), Create(CONFIG_MAPS, make_config("Not A Name"))))

    async def main() -> None:
        async with running(reconcile) as (cluster, metrics):
            await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            await asyncio.sleep(100)
            assert set(seen) == {"Invalid"}
            assert (await cluster.client.get(CONFIG_MAPS, "a", "default"))["data"]["why"]
            assert cluster.view.find(CONFIG_MAPS, "default", "b") is None, "nothing of a refused plan is kept"
            # 5 ms, doubling up to a minute: about fifteen tries in 100 s. A hot loop would make thousands.
            assert 5 < count(metrics, "refused") < 25

    run_virtual(main(), limit=200)


def test_a_conflict_is_read_again_and_not_shown_to_the_reconciler() -> None:
    tries: list[int] = []

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        assert not refusals
        obj = view.find(CONFIG_MAPS, request.namespace, request.name)
        if obj is None or request != only("a") or (obj.get("data") or {}).get("done"):
            return NOTHING
        tries.append(1)
        version = "1" if len(tries) == 1 else obj["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "data": {"done": "yes"}}
        return Plan((Patch(CONFIG_MAPS, "default", "a", body),))

    async def main() -> None:
        async with running(reconcile) as (cluster, metrics):
            await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            await asyncio.sleep(1)
            assert (await cluster.client.get(CONFIG_MAPS, "a", "default"))["data"] == {"done": "yes"}
            assert count(metrics, "retry") == 1

    run_virtual(main(), limit=60)


def test_work_goes_on_within_seconds_of_space_being_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    full = [True]
    tries: list[float] = []

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        obj = view.find(CONFIG_MAPS, request.namespace, request.name)
        if obj is None or request != only("a") or (obj.get("data") or {}).get("done"):
            return NOTHING
        tries.append(asyncio.get_running_loop().time())
        return Plan((Patch(CONFIG_MAPS, "default", "a", {"data": {"done": "yes"}}),))

    async def main() -> None:
        async with running(reconcile) as (cluster, metrics):
            put = cluster.store.put

            def refuse(*args: Any, **options: Any) -> Any:
                if full[0] and tries:
                    raise NoSpace("no space left")
                return put(*args, **options)

            monkeypatch.setattr(cluster.store, "put", refuse)
            await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            await asyncio.sleep(600)
            assert len(tries) < 150
            full[0] = False
            await asyncio.sleep(5)
            assert (await cluster.client.get(CONFIG_MAPS, "a", "default"))["data"] == {"done": "yes"}
            assert count(metrics, "retry") == len(tries) - 1

    run_virtual(main(), limit=700)


def test_an_error_concerns_one_object_only_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        obj = view.find(CONFIG_MAPS, request.namespace, request.name)
        if request == only("bad"):
            tries.append(1)
            raise RuntimeError("a bug")
        if obj is None or request != only("good") or obj.get("data"):
            return NOTHING
        return Plan((Patch(CONFIG_MAPS, "default", "good", {"data": {"done": "yes"}}),))

    async def main() -> None:
        async with running(reconcile) as (cluster, metrics):
            await cluster.client.create(CONFIG_MAPS, make_config("bad"), "default")
            await cluster.client.create(CONFIG_MAPS, make_config("good"), "default")
            await asyncio.sleep(1)
            assert (await cluster.client.get(CONFIG_MAPS, "good", "default"))["data"] == {"done": "yes"}
            assert 3 < len(tries) < 12
            assert count(metrics, "error") == len(tries)

    run_virtual(main(), limit=60)
    assert "reconcile failed" in caplog.text


def test_a_plan_may_ask_to_be_called_again_later() -> None:
    times: list[datetime] = []

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        if request != only("a"):
            return NOTHING
        times.append(now.wall)
        return Plan(requeue_after=3600.0 if len(times) < 3 else None)

    async def main() -> None:
        async with running(reconcile) as (cluster, _):
            await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            await asyncio.sleep(86_400)
            assert [round((later - times[0]).total_seconds()) for later in times] == [0, 3600, 7200]

    run_virtual(main(), limit=100_000)


def test_a_repeated_event_is_counted_in_one_object() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            recorder = EventRecorder(cluster.client, cluster.clock)
            obj = await cluster.client.create(CONFIG_MAPS, make_config("a"), "default")
            for _ in range(3):
                await recorder.record(Note(obj, "Again", "the same text", warning=True), "test")
                await asyncio.sleep(10)
            events = (await cluster.client.list(EVENTS, "default")).items
            assert [(event["count"], event["type"]) for event in events] == [(3, "Warning")]
            assert events[0]["lastTimestamp"] > events[0]["firstTimestamp"]

    run_virtual(main(), limit=60)
