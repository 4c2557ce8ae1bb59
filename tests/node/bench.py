"""A node agent with real processes on a real in-process API server, and what its tests ask again and again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS, PODS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import DeleteOptions, LogOptions, WatchOptions
from trainmaster.engine.events import EventRecorder
from trainmaster.kit.clock import SystemClock
from trainmaster.node.agent import NodeAgent
from trainmaster.node.runner import NodeSettings
from trainmaster.shim.protocol import Paths
from trainmaster.testing.cluster import Cluster, running_cluster

LIMIT = 40.0
Wanted = Callable[[Object], Any]


class Bench:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.root = root

    @asynccontextmanager
    async def running_agent(self, **settings: Any) -> AsyncIterator[NodeAgent]:
        recorder = EventRecorder(self.client, self.cluster.clock)
        usual: dict[str, Any] = {"environ": {"PATH": os.defpath}, "bundles": self.root.parent / "bundles"}
        full = NodeSettings(root=self.root, python_prefix=sys.prefix, **{**usual, **settings})
        async with NodeAgent(self.client, recorder, self.cluster.clock, full).running() as agent:
            yield agent

    async def create(self, script: str = "", *, name: str = "p", main: Object | None = None, **spec: Any) -> Object:
        container = {"name": "main", "image": "image:1", "command": ["/bin/sh", "-c", script], **(main or {})}
        # This server issues no tokens.
        usual = {"nodeName": "local", "restartPolicy": "Never", "automountServiceAccountToken": False}
        meta = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        pod["spec"] = {**usual, "containers": [container], **spec}
        return await self.client.create(PODS, pod, "default")

    async def wait_for(self, wanted: Wanted, name: str = "p") -> Object:
        options = WatchOptions(field_selector=f"metadata.name={name}")
        async with asyncio.timeout(LIMIT), self.client.watch(PODS, "default", options) as events:
            async for event in events:
                if event.type != "DELETED" and wanted(event.object):
                    return event.object
        raise AssertionError("the watch ended")

    async def wait_until(self, wanted: Callable[[], Any]) -> None:
        async with asyncio.timeout(LIMIT):
            while not wanted():
                await asyncio.sleep(0.01)

    async def delete(self, name: str = "p", grace: int | None = None) -> None:
        await self.client.delete(PODS, name, "default", DeleteOptions(grace_seconds=grace))

    async def wait_until_gone(self, name: str = "p") -> None:
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    await self.client.get(PODS, name, "default")
                except NotFound:
                    return
                await asyncio.sleep(0.01)

    async def remove(self, name: str = "p") -> None:
        """By force, and until nothing of it is left: an agent that stops earlier leaves its processes running."""
        uid = (await self.client.get(PODS, name, "default"))["metadata"]["uid"]
        await self.delete(name, 0)
        await self.wait_until_gone(name)
        await self.wait_until(lambda: not (self.root / uid).exists())

    async def read_log(self, agent: NodeAgent, pod: Object, container: str = "main", **options: Any) -> str:
        pieces = agent.logs.read(pod, container, LogOptions(**options))
        return b"".join([piece async for piece in pieces]).decode()

    async def list_events(self, reason: str) -> list[str]:
        events = (await self.client.list(EVENTS, "default")).items
        return [event["message"] for event in events if event["reason"] == reason]

    async def wait_for_event(self, reason: str) -> str:
        async with asyncio.timeout(LIMIT):
            while not (said := await self.list_events(reason)):
                await asyncio.sleep(0.01)
        return said[0]

    def get_work(self, pod: Object) -> Path:
        return self.root / str(pod["metadata"]["uid"]) / "work"

    def get_paths(self, pod: Object) -> Paths:
        return Paths(str(self.root / pod["metadata"]["uid"]))


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster(clock=SystemClock()) as cluster:
            await test(Bench(cluster, tmp_path / "pods"))

    asyncio.run(main())


def has_phase(*phases: str) -> Wanted:
    return lambda pod: pod.get("status", {}).get("phase") in phases


is_over = has_phase("Succeeded", "Failed")


def find_status(pod: Object, container: str = "main") -> Object:
    status = pod.get("status") or {}
    entries = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return next((entry for entry in entries if entry["name"] == container), {})


def get_ended(pod: Object, container: str = "main") -> Object:
    ended: Object = find_status(pod, container)["state"]["terminated"]
    return ended
