"""The whole system in one process, in virtual time: registry, controllers, and a node that follows a script.

    async with running_plant(node=ScriptedNode(exit_codes=[0])) as plant:
        await plant.apply(make_trainjob(...))
        await plant.wait_for(TRAIN_JOBS, "a", lambda job: ...)

The scripted node answers for the Pods bound to `local`: each becomes Running at once, and ends after a while with the
exit code that the script gives for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.prepared import copy_runtimes
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import EVENTS, NODES, PODS
from trainmaster.api.status import Conflict, Invalid, NotFound
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WatchOptions
from trainmaster.controllers.drain.reconciler import CONTROLLERS as DRAIN
from trainmaster.controllers.install import install_runtimes
from trainmaster.controllers.job.reconciler import CONTROLLER as JOB
from trainmaster.controllers.jobset.reconciler import CONTROLLER as JOBSET
from trainmaster.controllers.lifecycle.derived import CONTROLLER as DERIVED
from trainmaster.controllers.lifecycle.limits import CONTROLLER as HISTORY_LIMITS
from trainmaster.controllers.lifecycle.retention import CONTROLLERS as RETENTION
from trainmaster.controllers.scheduler.reconciler import CONTROLLER as SCHEDULER
from trainmaster.controllers.trainjob.reconciler import CONTROLLER as TRAINJOB
from trainmaster.controllers.v1jobs.reconciler import CONTROLLERS as V1_JOBS
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.feed import WatchFeed
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import Perform
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock, format_time, parse_time
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Store
from trainmaster.testing.cluster import Cluster, running_cluster

CHAIN = (TRAINJOB, *V1_JOBS, JOBSET, JOB, SCHEDULER)
LIFECYCLE = (*RETENTION, HISTORY_LIMITS, DERIVED)
CONTROLLERS = CHAIN + LIFECYCLE + DRAIN
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}}

Script = Callable[[Object, int], int]
"""(Pod, how many Pods of its index ran before) -> exit code; negative: runs until it is deleted."""


def succeed(pod: Object, run: int) -> int:
    return 0


@dataclass
class ScriptedNode:
    script: Script = succeed
    seconds: float = 5.0
    """How long a Pod runs before it ends by itself."""
    words: str = "step 3\nValueError: run {run}"
    """The last output of a Pod that fails."""
    started: list[str] = field(default_factory=list)
    _runs: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def get_seconds(self, pod: Object) -> float:
        return self.seconds

    async def run(self, client: Client, clock: Clock) -> None:
        async with Scope("scripted-node") as scope, client.watch(PODS, "", WatchOptions()) as events:
            seen: set[str] = set()
            async for event in events:
                pod = event.object
                meta = pod["metadata"]
                if event.type == "DELETED" or pod["spec"].get("nodeName") != "local":
                    continue
                if meta.get("deletionTimestamp") and f"{meta['uid']}/end" not in seen:
                    seen.add(f"{meta['uid']}/end")
                    scope.spawn(self._terminate(client, clock, pod), name="node.terminate")
                elif meta["uid"] not in seen and "deletionTimestamp" not in meta:
                    seen.add(meta["uid"])
                    scope.spawn(self._live(client, clock, pod), name="node.live")

    def count_start(self, pod: Object) -> int:
        """Notes that the Pod runs; returns how many of its index did before."""
        key = (pod["metadata"]["labels"].get("job-name", ""), Pod(pod).index)
        run = self._runs.get(key, 0)
        self._runs[key] = run + 1
        self.started.append(pod["metadata"]["name"])
        return run

    async def _live(self, client: Client, clock: Clock, pod: Object) -> None:
        run = self.count_start(pod)
        moment = format_time(clock.now())
        container = _container(pod, {"running": {"startedAt": moment}}, ready=True)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
        await _report(client, pod, {"phase": "Running", "conditions": [ready], "containerStatuses": [container]})
        await self.end(client, clock, pod, run, moment)

    async def end(self, client: Client, clock: Clock, pod: Object, run: int, moment: str) -> None:
        """Lets the Pod end as the script says, or run on."""
        code = self.script(pod, run)
        if code < 0:
            return
        await clock.sleep(self.get_seconds(pod))
        ended: Object = {"exitCode": code, "startedAt": moment, "finishedAt": format_time(clock.now())}
        ended |= {"reason": "Script"} if code == 0 else {"reason": "Error", "message": self.words.format(run=run)}
        container = _container(pod, {"terminated": ended}, ready=False)
        phase = "Succeeded" if code == 0 else "Failed"
        await _report(client, pod, {"phase": phase, "conditions": [], "containerStatuses": [container]})

    async def report_stopped(self, client: Client, clock: Clock, pod: Object) -> None:
        """Its program has heeded the request to end."""
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            ended = {"exitCode": 143, "finishedAt": format_time(clock.now()), "reason": "Error"}
            container = _container(pod, {"terminated": ended}, ready=False)
            await _report(client, pod, {"phase": "Failed", "conditions": [], "containerStatuses": [container]})

    async def _terminate(self, client: Client, clock: Clock, pod: Object) -> None:
        """As a node: it says how the Pod ended, then lets the object go (a podFailurePolicy waits for that)."""
        await clock.sleep(0.2)
        meta = pod["metadata"]
        await self.report_stopped(client, clock, pod)
        try:
            await client.delete(PODS, meta["name"], meta["namespace"], DeleteOptions(grace_seconds=0, uid=meta["uid"]))
        except NotFound:
            return


def _container(pod: Object, state: Object, *, ready: bool) -> Object:
    container = pod["spec"]["containers"][0]
    head = {"name": container["name"], "image": container["image"], "imageID": "", "ready": ready}
    return {**head, "restartCount": 0, "state": state}


async def _report(client: Client, pod: Object, status: Object) -> None:
    meta = pod["metadata"]
    patch = {"metadata": {"uid": meta["uid"]}, "status": status}
    try:
        await client.patch(PODS, meta["name"], PatchType.MERGE, patch, meta["namespace"], subresource="status")
    except NotFound:
        return
    except (Conflict, Invalid) as refusal:
        # A new Pod may have the name already.
        if "uid" not in refusal.message:
            raise


@dataclass
class Plant:
    cluster: Cluster
    manager: Manager
    node: ScriptedNode

    @property
    def client(self) -> Client:
        return self.cluster.client

    async def apply(self, *objects: tuple[GVR, Object]) -> None:
        for gvr, obj in objects:
            await self.client.create(gvr, obj, obj["metadata"].get("namespace", ""))

    async def wait_for(
        self, gvr: GVR, name: str, wanted: Callable[[Object], Any], namespace: str = "default"
    ) -> Object:
        """The object once the condition holds; virtual time passes meanwhile."""
        async with self.client.watch(gvr, namespace, WatchOptions(field_selector=f"metadata.name={name}")) as events:
            async for event in events:
                if event.type != "DELETED" and wanted(event.object):
                    return event.object
        raise AssertionError("the watch ended")

    async def list_all(self, gvr: GVR, namespace: str = "default") -> list[Object]:
        return (await self.client.list(gvr, namespace)).items

    async def list_event_reasons(self) -> list[str]:
        events = sorted(await self.list_all(EVENTS), key=lambda event: parse_time(event["firstTimestamp"]))
        return [event["reason"] for event in events]

    async def settle(self) -> None:
        """Until nobody has anything to do without time passing."""
        for _ in range(3):
            await self.cluster.settle()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running_plant(
    node: ScriptedNode | None = None,
    *,
    controllers: Sequence[Any] = CHAIN,
    lifecycle: Sequence[Any] = LIFECYCLE,
    effects: Mapping[str, Perform] | None = None,
    runtimes: bool = True,
    store: Store | None = None,
) -> AsyncIterator[Plant]:
    node = node or ScriptedNode()
    begins = copy_runtimes() if runtimes and store is None else store
    async with running_cluster(store=begins) as cluster:
        client, clock = cluster.client, cluster.clock
        if runtimes and store is not None:
            await install_runtimes(client)
        if cluster.view.find(NODES, "", NODE["metadata"]["name"]) is None:
            await client.create(NODES, NODE)
        manager = Manager(
            (*controllers, *lifecycle, *DRAIN),
            view=cluster.view,
            feed=WatchFeed(client, clock),
            apply=apply_in_one(client),
            recorder=EventRecorder(client, clock),
            clock=clock,
            effects=effects,
        )
        async with Scope("plant") as scope, manager.running():
            scope.spawn_forever(node.run(client, clock), name="plant.node")
            yield Plant(cluster, manager, node)
