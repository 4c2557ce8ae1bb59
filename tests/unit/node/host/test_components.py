"""The parts of the control plane, as Pods that say how they really are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.labels import MIRROR
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.client.contract import DeleteOptions, ListOptions
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
from trainmaster.version import __version__

pytestmark = pytest.mark.unit

NAMESPACE = "kubeflow-system"


async def get_shown(cluster: Cluster, name: str) -> tuple[str, bool, str]:
    """(phase, ready, why not) of the Pod, after a check that its Deployment agrees."""
    pod = await cluster.client.get(PODS, name, NAMESPACE)
    condition = find_condition(list_conditions(pod), "Ready") or {}
    assert pod["status"]["containerStatuses"][0]["ready"] == (condition["status"] == "True")
    deployment = await cluster.client.get(DEPLOYMENTS, name, NAMESPACE)
    available = find_condition(list_conditions(deployment), "Available") or {}
    assert available["status"] == condition["status"]
    assert condition.get("message", "") in available["message"]
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
            deployments = (await client.list(DEPLOYMENTS, NAMESPACE)).items
            assert [deployment["metadata"]["name"] for deployment in deployments] == ["a"]

    run_virtual(main(), limit=86_400)


def test_a_deployment_counts_its_pod_and_selects_it() -> None:
    async def main() -> None:
        trouble = [""]
        async with running_cluster() as cluster:
            ensure_built_ins(cluster.registry)
            client, clock = cluster.client, cluster.clock
            components = Components(client, clock, {"a": lambda: trouble[0], "b": lambda: ""})
            await components.sync()
            deployment = await client.get(DEPLOYMENTS, "a", NAMESPACE)
            selector = deployment["spec"]["selector"]["matchLabels"]
            chosen = ListOptions(label_selector=",".join(f"{key}={value}" for key, value in selector.items()))
            assert [pod["metadata"]["name"] for pod in (await client.list(PODS, NAMESPACE, chosen)).items] == ["a"]
            assert deployment["spec"]["template"]["metadata"]["labels"].items() >= selector.items()
            counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
            assert deployment["status"].items() >= {"observedGeneration": 1, **counts}.items()
            since = [condition["lastTransitionTime"] for condition in list_conditions(deployment)]
            await clock.sleep(60)
            trouble[0] = "no commit for 12 s"
            await components.sync()
            deployment = await client.get(DEPLOYMENTS, "a", NAMESPACE)
            counts = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 0, "unavailableReplicas": 1}
            assert deployment["status"].items() >= counts.items()
            available, progressing = list_conditions(deployment)
            assert (available["type"], available["status"]) == ("Available", "False")
            assert available["lastTransitionTime"] > since[0]
            assert (progressing["type"], progressing["lastTransitionTime"]) == ("Progressing", since[1])

    run_virtual(main(), limit=86_400)


def test_parts_show_the_version_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def list_images(cluster: Cluster) -> list[str]:
        pod = await cluster.client.get(PODS, "a", NAMESPACE)
        deployment = await cluster.client.get(DEPLOYMENTS, "a", NAMESPACE)
        assert deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
        pods = (pod["spec"], deployment["spec"]["template"]["spec"])
        return [spec["containers"][0]["image"] for spec in pods]

    async def main() -> None:
        async with running_cluster() as cluster:
            ensure_built_ins(cluster.registry)
            with monkeypatch.context() as patched:
                patched.setattr("trainmaster.node.host.components.IMAGE", "trainmaster:0.0.1")
                await Components(cluster.client, cluster.clock, {"a": lambda: ""}).sync()
                assert await list_images(cluster) == ["trainmaster:0.0.1"] * 2
            first = await cluster.client.get(DEPLOYMENTS, "a", NAMESPACE)
            await Components(cluster.client, cluster.clock, {"a": lambda: ""}).sync()
            assert await list_images(cluster) == [f"trainmaster:{__version__}"] * 2
            assert await get_shown(cluster, "a") == ("Running", True, "")
            second = await cluster.client.get(DEPLOYMENTS, "a", NAMESPACE)
            assert second["metadata"]["uid"] == first["metadata"]["uid"]

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
