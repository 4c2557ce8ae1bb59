"""A job whose Pods and logs a test controls step by step, on an in-process cluster in virtual time.

No controller and no node runs: the test creates Pods, lets them print, cuts connections and lets Pods go, and looks
at what `jobs.logs` makes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api import status
from trainmaster.api.labels import (
    COMPLETION_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    POD_ATTEMPT,
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
)
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import JOB_NAME, OPERATOR_NAME, PYTORCH, REPLICA_INDEX, REPLICA_TYPE
from trainmaster.client.contract import DeleteOptions, LogOptions, PatchType, WatchEvent, WatchOptions, WatchStream
from trainmaster.client.http import Unreachable
from trainmaster.controllers.install import install_runtimes
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.logs.contract import KeptLog
from trainmaster.jobs.logs.lines import Stamped, sort_key
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.testing.cluster import Cluster

NAMESPACE = "default"
_POD_SPEC: Object = {"containers": [{"name": "node", "image": "i"}], "restartPolicy": "OnFailure", "nodeName": "n"}


@dataclass
class Run:
    """One run of a container: what it printed, and whether it may print more."""

    lines: list[Stamped] = field(default_factory=list)
    open: bool = True
    drains: int = 0
    """How often a stopping server has ended its streams normally."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


@dataclass(frozen=True)
class FindLeftovers:
    place: PodPlace
    container: str
    restart: int
    lines: Sequence[Stamped]


class LogWorld:
    """Also implements `jobs.logs.contract.Kept`, and the `Client` protocol by way of the cluster's own."""

    gvr = TRAIN_JOBS
    container = "node"

    def __init__(self, cluster: Cluster, name: str = "job") -> None:
        self._cluster = cluster
        self.name = name
        self.uid = ""
        self.jobset = ""
        self.runs: dict[str, list[Run]] = {}
        self.kept: list[FindLeftovers] = []
        self.cuts = 0
        """Number of the next streams that break after their first line."""
        self.asked: list[LogOptions] = []
        self.sight = asyncio.Event()
        """While it is cleared, watches receive no events about Pods."""
        self.sight.set()
        self._second = 0
        self._uids: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.client, name)

    # Acts

    async def submit(self) -> None:
        await install_runtimes(self._cluster.client)
        head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
        body = {**head, "metadata": {"name": self.name}, "spec": {"runtimeRef": {"name": "plain"}}}
        created = await self._cluster.client.create(TRAIN_JOBS, body, NAMESPACE)
        self.uid = created["metadata"]["uid"]
        await self.make_jobset()

    async def make_jobset(self) -> None:
        owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": self.name, "uid": self.uid}
        template = {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}}}
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": self.name, "ownerReferences": [{**owner, "controller": True}]},
            "spec": {"replicatedJobs": [{"name": "node", "template": template}]},
        }
        self.jobset = (await self._cluster.client.create(JOB_SETS, body, NAMESPACE))["metadata"]["uid"]

    async def start(self, pod: str, *, rank: int = 0, attempt: int = 0) -> None:
        await self.bind(pod, rank=rank, attempt=attempt)
        await self.begin(pod)

    async def bind(self, pod: str, *, rank: int = 0, attempt: int = 0) -> None:
        """Its container has not started."""
        labels = {
            JOBSET_NAME: self.name,
            JOBSET_UID: self.jobset,
            REPLICATED_JOB_NAME: "node",
            RESTART_ATTEMPT: str(attempt),
            COMPLETION_INDEX: str(rank),
        }
        body = {"metadata": {"name": pod, "labels": labels}, "spec": _POD_SPEC}
        await self._create_pod(body)

    async def _create_pod(self, body: Object) -> None:
        created = await self._cluster.client.create(PODS, body, NAMESPACE)
        name = created["metadata"]["name"]
        self._uids[name] = created["metadata"]["uid"]
        self.runs[name] = [Run()]

    async def begin(self, pod: str) -> None:
        await self._report(pod, "Running", {"running": {}})

    def drain(self) -> None:
        """Stops the server: streams end although containers have not."""
        for runs in self.runs.values():
            runs[-1].drains += 1
            runs[-1].wake()

    def print(self, pod: str, *texts: str, time: str = "") -> None:
        run = self.runs[pod][-1]
        for text in texts:
            if not time:
                self._second += 1
            moment = time or f"2026-01-01T00:{self._second // 60:02}:{self._second % 60:02}.000000000Z"
            run.lines.append((moment, text.encode()))
        run.wake()

    async def restart_container(self, pod: str) -> None:
        self._close(pod)
        self.runs[pod].append(Run())
        ended = {"terminated": {"exitCode": 1}}
        await self._report(pod, "Running", {"running": {}}, restarts=len(self.runs[pod]) - 1, last=ended)

    async def end(self, pod: str, code: int = 0) -> None:
        self._close(pod)
        state = {"terminated": {"exitCode": code}}
        await self._report(pod, "Failed" if code else "Succeeded", state, restarts=len(self.runs[pod]) - 1)

    async def remove(self, pod: str, *, keep: bool = True) -> None:
        obj = await self._cluster.client.get(PODS, pod, NAMESPACE)
        place = find_place(obj)
        assert place is not None
        self._close(pod)
        if keep:
            self.kept += [
                FindLeftovers(place, self.container, n, tuple(run.lines)) for n, run in enumerate(self.runs[pod])
            ]
        del self.runs[pod]
        await self._cluster.client.delete(PODS, pod, NAMESPACE, DeleteOptions(grace_seconds=0))

    async def finish(self, kind: str = "Complete") -> None:
        condition = {
            "type": kind,
            "status": "True",
            "reason": "AllJobsCompleted",
            "message": "done",
            "lastTransitionTime": "2026-01-01T01:00:00Z",
        }
        await self.set_status({"conditions": [condition]})

    async def set_status(self, body: Object) -> None:
        patch = {"status": body}
        await self._cluster.client.patch(self.gvr, self.name, PatchType.MERGE, patch, NAMESPACE, subresource="status")

    def _close(self, pod: str) -> None:
        run = self.runs[pod][-1]
        run.open = False
        run.wake()

    async def _report(
        self, pod: str, phase: str, state: Object, *, restarts: int = 0, last: Object | None = None
    ) -> None:
        entry = {
            "name": self.container,
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": restarts,
            "state": state,
        }
        if last is not None:
            entry["lastState"] = last
        patch = {"status": {"phase": phase, "containerStatuses": [entry]}}
        await self._cluster.client.patch(PODS, pod, PatchType.MERGE, patch, NAMESPACE, subresource="status")

    # The server's side

    async def logs(self, name: str, namespace: str, options: LogOptions = LogOptions()) -> AsyncIterator[bytes]:  # noqa: B008 - frozen
        self.asked.append(options)
        if name not in self.runs or options.uid not in ("", self._uids[name]):
            raise status.not_found(PODS, name)
        run = self.runs[name][-2 if options.previous else -1]
        position = max(0, len(run.lines) - options.tail_lines) if options.tail_lines is not None else 0
        cut, self.cuts = self.cuts > 0, max(0, self.cuts - 1)
        drains = run.drains
        while True:
            news = run.news
            for time, text in run.lines[position:]:
                position += 1
                if sort_key(time) >= sort_key(options.since_time):
                    yield f"{time} ".encode() + text + b"\n"
                    if cut:
                        raise Unreachable("the connection was cut", sent=True)
            if not run.open or not options.follow or run.drains > drains:
                return
            await news.wait()

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = WatchOptions()) -> Any:  # noqa: B008 - frozen
        stream = self._cluster.client.watch(gvr, namespace, options)
        return self._watch_blinking(stream) if gvr == PODS else stream

    @asynccontextmanager
    async def _watch_blinking(self, stream: WatchStream) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async def see() -> AsyncIterator[WatchEvent]:
            async for event in events:
                await self.sight.wait()
                yield event

        async with stream as events:
            yield see()

    # Kept

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        return list(self.kept)

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        assert isinstance(log, FindLeftovers)
        return iter(log.lines)


class V1LogWorld(LogWorld):
    """The same with a PyTorchJob, whose Pods have the same names again when they are replaced."""

    gvr = PYTORCH.gvr
    container = PYTORCH.container

    async def submit(self) -> None:
        template = {"spec": {"containers": [{"name": self.container, "image": "i"}]}}
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": PYTORCH.kind,
            "metadata": {"name": self.name},
            "spec": {PYTORCH.replicas_field: {"Worker": {"replicas": 2, "template": template}}},
        }
        self.uid = (await self._cluster.client.create(self.gvr, body, NAMESPACE))["metadata"]["uid"]

    async def bind(self, pod: str, *, rank: int = 0, attempt: int = 0) -> None:
        labels = {
            JOB_NAME: self.name,
            OPERATOR_NAME: PYTORCH.controller,
            REPLICA_TYPE: "worker",
            REPLICA_INDEX: str(rank),
        }
        owner = {"apiVersion": "kubeflow.org/v1", "kind": PYTORCH.kind, "name": self.name, "uid": self.uid}
        meta = {"name": pod, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
        if attempt:
            meta["annotations"] = {POD_ATTEMPT: str(attempt)}
        containers = [{"name": self.container, "image": "i"}]
        await self._create_pod({"metadata": meta, "spec": {**_POD_SPEC, "containers": containers}})

    async def finish(self, kind: str = "Succeeded") -> None:
        await super().finish(kind)
