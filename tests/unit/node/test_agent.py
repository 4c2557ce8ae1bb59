"""The order of what the agent does when a Pod ends. What it starts and stops is made up."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import DeleteOptions
from trainmaster.engine.events import EventRecorder
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.agent import NodeAgent
from trainmaster.node.runner import NodeSettings
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Bench:
    def __init__(self, cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = cluster.client
        settings = NodeSettings(root=root / "pods", python_prefix=sys.prefix, bundles=root / "bundles")
        self.agent = NodeAgent(cluster.client, EventRecorder(cluster.client, cluster.clock), cluster.clock, settings)
        self.acts: list[tuple[str, str, bool, int]] = []
        """(what the runner was asked, about which Pod, whether its object was there, Pods that wait to be handled)."""
        for name in ("stop", "settle"):
            monkeypatch.setattr(self.agent.runner, name, self._make_act(name))
        monkeypatch.setattr(self.agent.runner, "remove", lambda pod: self._note("remove", pod.uid))

    def _make_act(self, name: str) -> Callable[[str], Awaitable[None]]:
        return lambda uid: self._note(name, uid)

    async def _note(self, what: str, uid: str) -> None:
        pod = self.agent._pods[uid].obj
        self.acts.append((what, pod.name, await self._exists(pod), len(self.agent._queue)))

    async def _exists(self, pod: Pod) -> bool:
        try:
            await self.client.get(PODS, pod.name, pod.namespace)
        except NotFound:
            return False
        return True

    async def create(self, name: str) -> Object:
        meta = {"name": name, "namespace": "default", "labels": {JOBSET_UID: "gang"}}
        spec = {"nodeName": "local", "containers": [{"name": "main", "image": "i", "command": ["x"]}]}
        pod = await self.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, "default"
        )
        self.agent._take(Pod(pod), gone=False)
        return pod

    async def handle(self, obj: Object, *, gone: bool = False) -> None:
        """Handles a change of one Pod, with an empty queue."""
        self.agent._take(Pod(obj), gone=gone)
        while len(self.agent._queue):
            self.agent._queue.done(await self.agent._queue.get())
        await self.agent._sync(self.agent._pods[obj["metadata"]["uid"]])


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Bench(cluster, tmp_path, monkeypatch))

    run_virtual(main())


def test_a_deleted_pod_is_confirmed_before_its_sandbox_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        await bench.create("a")
        await bench.handle(await bench.client.delete(PODS, "a", "default", DeleteOptions(grace_seconds=30)))
        assert bench.acts == [("settle", "a", False, 0)]

    run(tmp_path, monkeypatch, test)


def test_a_gang_goes_on_once_nothing_of_a_gone_pod_runs_and_before_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        gone = await bench.create("a")
        await bench.create("b")
        await bench.client.delete(PODS, "a", "default", DeleteOptions(grace_seconds=0))
        await bench.handle(gone, gone=True)
        assert bench.acts == [("stop", "a", False, 0), ("remove", "a", False, 1)]

    run(tmp_path, monkeypatch, test)
