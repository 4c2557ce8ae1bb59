"""The parts of the control plane, as Pods that say how they really are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.labels import MIRROR
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, NODES, PODS
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.client.contract import DeleteOptions
from trainmaster.client.view import View
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.scheduler.reconciler import CONTROLLER as SCHEDULER
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.timeline import Now
from trainmaster.node.host.components import LOOK_SECONDS, START_SECONDS, Components, name_controller
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

NAMESPACE = "kubeflow-system"


async def get_shown(cluster: Cluster, name: str) -> tuple[str, bool, str]:
    """(phase, ready, why not)"""
    pod = await cluster.client.get(PODS, name, NAMESPACE)
    condition = find_condition(list_conditions(pod), "Ready") or {}
    assert pod["status"]["containerStatuses"][0]["ready"] == (condition["status"] == "True")
    return pod["status"]["phase"], condition["status"] == "True", condition.get("message", "")


def test_a_controller_that_breaks_is_seen_in_its_pod_and_so_is_its_recovery() -> None:
    broken = [False]

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
        if broken[0]:
            raise ValueError("a wheel came off")
        return NOTHING

    controller = Controller("trainjob", CONFIG_MAPS, reconcile, (ChangeSource(CONFIG_MAPS, map_to_self),), "test")

    async def main() -> None:
        async with running_cluster() as cluster:
            ensure_built_ins(cluster.registry)
            client, clock = cluster.client, cluster.clock
            manager = Manager(
                [controller, SCHEDULER],
                view=cluster.view,
                feed=cluster.view,
                apply=apply_in_one(client),
                recorder=EventRecorder(client, clock),
                clock=clock,
            )
            checks = {name_controller(name): lambda name=name: manager.find_trouble(name) for name in manager.names}
            await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}})
            async with manager.running(), Components(client, clock, checks).running():
                await clock.sleep(1)
                name = "kubeflow-trainer-controller-manager"
                assert await get_shown(cluster, name) == ("Running", True, "")
                broken[0] = True
                manager.add("trainjob", Request("default", "x"))
                await clock.sleep(LOOK_SECONDS)
                text = "the pass over default/x failed: ValueError: a wheel came off"
                assert await get_shown(cluster, name) == ("Running", False, text)
                assert (await get_shown(cluster, "trainmaster-scheduler"))[1]
                broken[0] = False
                await clock.sleep(120)
                assert await get_shown(cluster, name) == ("Running", True, "")

    run_virtual(main(), limit=86_400)


def test_component_pods_are_written_only_when_something_changes_and_follow_what_there_is() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            ensure_built_ins(cluster.registry)
            client, clock = cluster.client, cluster.clock
            components = Components(client, clock, {"a": lambda: "", "b": lambda: "not yet"})
            await components.sync()
            before = cluster.store.revision
            await clock.sleep(60)
            await components.sync()
            assert cluster.store.revision == before
            await Components(client, clock, {"a": lambda: ""}).sync()
            shown = (await client.list(PODS, NAMESPACE)).items
            assert [pod["metadata"]["name"] for pod in shown] == ["a"]
            assert MIRROR in shown[0]["metadata"]["annotations"]
            assert shown[0]["spec"]["nodeName"] == "local"

    run_virtual(main(), limit=86_400)


def test_a_component_pod_that_somebody_deletes_comes_back() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            ensure_built_ins(cluster.registry)
            components = Components(cluster.client, cluster.clock, {"a": lambda: ""})
            await components.sync()
            first: Object = await cluster.client.get(PODS, "a", NAMESPACE)
            await cluster.client.delete(PODS, "a", NAMESPACE)
            await components.sync()
            second = await cluster.client.get(PODS, "a", NAMESPACE)
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            assert await get_shown(cluster, "a") == ("Running", True, "")

    run_virtual(main(), limit=86_400)


def test_a_start_makes_what_is_missing_at_once_and_writes_the_rest_a_moment_later() -> None:
    async def get_began(cluster: Cluster) -> str:
        pod = await cluster.client.get(PODS, "a", NAMESPACE)
        return str(pod["status"]["startTime"])

    async def main() -> None:
        async with running_cluster() as cluster:
            ensure_built_ins(cluster.registry)
            client, clock = cluster.client, cluster.clock
            async with Components(client, clock, {"a": lambda: ""}).running():
                await clock.sleep(START_SECONDS / 2)
                first = await get_began(cluster)
            await clock.sleep(60)
            async with Components(client, clock, {"a": lambda: "not yet"}).running():
                await clock.sleep(START_SECONDS / 2)
                assert await get_began(cluster) == first
                await clock.sleep(START_SECONDS)
                assert await get_began(cluster) > first
                assert await get_shown(cluster, "a") == ("Running", False, "not yet")
            await client.delete(PODS, "a", NAMESPACE, DeleteOptions(grace_seconds=0))
            await clock.sleep(60)
            async with Components(client, clock, {"a": lambda: ""}).running():
                await clock.sleep(START_SECONDS / 2)
                assert await get_shown(cluster, "a") == ("Running", True, "")

    run_virtual(main(), limit=86_400)
