"""The embedded control plane with a scripted node, in this process: what the benches of the controllers measure.

Store (durable, on disk), registry, engine and controllers are put together as `trainmaster up` does it. Only the node
is not real: a Pod is Running as soon as it is bound and its binding is on disk, and Succeeded right after. With
`serve=True` the API server answers over TLS too, and `kubeconfig` names it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES, PODS
from trainmaster.api.status import NotFound
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.app.collector import collect_in_quiet_moments, stop_automatic_collection
from trainmaster.app.control_plane import ControlPlane, World
from trainmaster.app.embedded import SWITCH_SECONDS
from trainmaster.app.home.credentials import write_kubeconfig
from trainmaster.app.home.folder import Home
from trainmaster.app.process import find_loop_factory
from trainmaster.app.settings import Settings
from trainmaster.app.workloads import CONTROLLERS
from trainmaster.auth.pki import Pki
from trainmaster.client.contract import DeleteOptions, PatchType, WatchOptions, WriteOptions
from trainmaster.controllers.install import install_runtimes
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.store.sqlite import SqliteStore

T = TypeVar("T")

JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
_OPTIONS = WriteOptions(field_manager="trainmaster-node", read_only=True)
"""As the node's agent writes."""
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}}


def run(main: Coroutine[Any, Any, T]) -> T:
    """On the event loop and with the settings of the interpreter that the server has."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=find_loop_factory(Settings().process.uvloop)) as runner:
        return runner.run(main)


@dataclass
class ScriptedNode:
    """Answers for Pods as a node does whose programs end at once."""

    client: LocalClient
    ends: bool = True
    """False: Pods run on."""
    _seen: set[str] = field(default_factory=set)
    _todo: asyncio.Queue[Coroutine[Any, Any, None]] = field(default_factory=asyncio.Queue)
    _running: Counter[str] = field(default_factory=Counter)

    def running_of(self, trainjob: str) -> int:
        """How many Pods of that job have become Running."""
        return self._running[trainjob]

    async def work(self) -> None:
        async with Scope("bench.node") as scope, self.client.watch(PODS, "", WatchOptions(read_only=True)) as events:
            scope.spawn_forever(self._act(), name="bench.pods")
            async for event in events:
                pod = event.object
                uid = pod["metadata"]["uid"]
                if event.type == "DELETED":
                    self._seen.discard(uid)
                elif "deletionTimestamp" in pod["metadata"]:
                    self._todo.put_nowait(self._remove(pod))
                elif pod["spec"].get("nodeName") and uid not in self._seen and pod["status"]["phase"] == "Pending":
                    self._seen.add(uid)
                    self._todo.put_nowait(self._live(pod))

    async def _act(self) -> None:
        """One Pod after the other, as the real node hears of its processes; others get their turn in between."""
        while True:
            await (await self._todo.get())
            await asyncio.sleep(0)

    async def _live(self, pod: Object) -> None:
        # A process may start only once the binding is on disk.
        await self.client.durable(int(pod["metadata"]["resourceVersion"]))
        moment = format_time(SystemClock().now())
        container = pod["spec"]["containers"][0]
        head = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
        running = {**head, "ready": True, "state": {"running": {"startedAt": moment}}}
        await self._report(pod, {"phase": "Running", "conditions": [ready], "containerStatuses": [running]})
        self._running[pod["metadata"]["labels"].get(JOB_SET_NAME, "")] += 1
        if self.ends:
            self._todo.put_nowait(self._end(pod, head, ready, moment))

    async def _end(self, pod: Object, head: Object, ready: Object, moment: str) -> None:
        ended = {"exitCode": 0, "startedAt": moment, "finishedAt": moment, "reason": "Completed"}
        gone = {**ready, "status": "False", "reason": "PodCompleted"}
        over = {**head, "ready": False, "state": {"terminated": ended}}
        await self._report(pod, {"phase": "Succeeded", "conditions": [gone], "containerStatuses": [over]})

    async def _remove(self, pod: Object) -> None:
        meta = pod["metadata"]
        with suppress(NotFound):
            gone = DeleteOptions(grace_seconds=0, uid=meta["uid"])
            await self.client.delete(PODS, meta["name"], meta["namespace"], gone)

    async def _report(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": status}
        await self.client.patch(
            PODS, meta["name"], PatchType.MERGE, patch, meta["namespace"], subresource="status", options=_OPTIONS
        )


@dataclass
class Plant:
    client: LocalClient
    node: ScriptedNode
    manager: Manager
    store: SqliteStore
    kubeconfig: Path
    """Of the API server; exists with `serve=True`."""


@asynccontextmanager
async def running_plant(directory: Path, *, serve: bool = False, ends: bool = True) -> AsyncIterator[Plant]:
    clock = SystemClock()
    home = Home(directory)
    world = World(home, Settings(), {}, clock, SystemIds())
    async with AsyncExitStack() as stack:
        home.prepare()
        pki = Pki(home.pki, clock)
        pki.ensure([])
        store = await stack.enter_async_context(SqliteStore.open(home.store, clock))
        api = ControlPlane(world, store)
        stack.callback(api.close)
        await stack.enter_async_context(api.registry.running(pki.ca.certificate.read_text()))
        ensure_built_ins(api.registry)
        client, view = LocalClient(api.registry), LocalView(api.registry)
        stack.callback(view.close)
        manager = Manager(
            CONTROLLERS,
            view=view,
            feed=view,
            apply=apply_in_one(client),
            recorder=EventRecorder(client, clock, apply=apply_in_one(client)),
            clock=clock,
            metrics=api.metrics,
            settled=store.settled_revision,
        )
        await install_runtimes(client)
        if store.get("nodes", "local") is None:
            await client.create(NODES, NODE)
        node = ScriptedNode(client, ends)
        scope = await stack.enter_async_context(Scope("bench"))
        stack.callback(scope.cancel)
        await stack.enter_async_context(manager.running())
        scope.spawn_forever(node.work(), name="bench.node")
        if serve:
            server = await stack.enter_async_context(api.build_server(pki, 0))
            write_kubeconfig(home, f"https://127.0.0.1:{server.address[1]}", pki.ca.certificate, world.ids)
        stop_automatic_collection()
        scope.spawn_forever(collect_in_quiet_moments(clock), name="bench.collector")
        yield Plant(client, node, manager, store, home.kubeconfig)
