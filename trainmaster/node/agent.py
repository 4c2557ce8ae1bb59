"""The node agent: follows the Pods bound to this node, runs them, and reports their status.

Per Pod it keeps a `PodState`; after each change (the Pod object, a process that ended, a timer) it asks the pure
machine what to do and does it. Nothing is started before the Pod is durable (design 11). Leaving the agent leaves the
processes running; a new agent finds them through the records in the Pod directories and adopts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType, WatchOptions, WriteOptions
from trainmaster.engine.events import Recorder
from trainmaster.engine.plan import Note
from trainmaster.engine.queue import WorkQueue
from trainmaster.kit import logs
from trainmaster.kit.backoff import Backoff, Policy
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.node import machine
from trainmaster.node.inotify import Inotify
from trainmaster.node.logs import PodLogReader
from trainmaster.node.machine import Confirm, PodState, Signal, Start
from trainmaster.node.registration import register_node
from trainmaster.node.runner import PodRunner, Settings
from trainmaster.node.status import build_status
from trainmaster.node.supervisor import Supervisor

log = logging.getLogger(__name__)

REPORTER = "trainmaster-node"
_OWN_FIELDS = (
    "phase",
    "conditions",
    "hostIP",
    "podIP",
    "podIPs",
    "startTime",
    "reason",
    "message",
    "containerStatuses",
)


@dataclass(slots=True)
class _Pod:
    """One Pod of this node: the newest object, and the machine's state once it was looked at."""

    obj: Object
    state: PodState | None = None
    gone: bool = False
    ends: dict[tuple[str, int], asyncio.Event] = field(default_factory=dict)


class NodeAgent:
    def __init__(self, client: Client, recorder: Recorder, clock: Clock, settings: Settings) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._pods: dict[str, _Pod] = {}
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._supervisor = Supervisor()
        self._runner = PodRunner(settings, self._supervisor, clock)
        self._logs: PodLogReader | None = None

    @property
    def logs(self) -> PodLogReader:
        assert self._logs is not None, "the agent runs before logs are read"
        return self._logs

    @asynccontextmanager
    async def running(self) -> AsyncIterator[NodeAgent]:
        inotify = Inotify()
        self._logs = PodLogReader(self._settings.root, inotify, self._find_end)
        try:
            async with self._supervisor, Scope("node") as scope:
                await register_node(self._client, self._settings.name, self._clock.now())
                scope.spawn_forever(self._follow(), name="node.pods")
                for number in range(self._settings.workers):
                    scope.spawn_forever(self._work(), name=f"node.worker.{number}")
                yield self
        finally:
            inotify.close()

    # What happens: Pods change, processes end

    async def _follow(self) -> None:
        selector = f"spec.nodeName={self._settings.name}"
        backoff = Backoff(Policy(first=0.1, cap=30.0))
        while True:
            try:
                page = await self._client.list(PODS, "", ListOptions(field_selector=selector))
                await self._take_all(page.items)
                options = WatchOptions(field_selector=selector, resource_version=page.resource_version, bookmarks=True)
                async with self._client.watch(PODS, "", options) as events:
                    async for event in events:
                        backoff.reset()
                        if event.type != "BOOKMARK":
                            self._take(event.object, gone=event.type == "DELETED")
            except (StatusError, OSError) as error:
                log.warning("watch of pods broke, listing again", extra={"error": str(error)})
                await self._clock.sleep(backoff.next())
            await asyncio.sleep(0)

    async def _take_all(self, items: list[Object]) -> None:
        """The whole truth, at the start and after a gap: what is not in it is gone, and so is what it left behind."""
        present = {obj["metadata"]["uid"] for obj in items}
        for uid, pod in tuple(self._pods.items()):
            if uid not in present:
                self._take(pod.obj, gone=True)
        for obj in items:
            self._take(obj, gone=False)
        await self._runner.sweep(present | set(self._pods))

    def _take(self, obj: Object, *, gone: bool) -> None:
        uid = obj["metadata"]["uid"]
        known = self._pods.get(uid)
        if known is None:
            if gone:
                return
            self._pods[uid] = _Pod(obj)
        else:
            known.obj = obj
            known.gone = gone
        self._queue.add(uid)

    def _find_end(self, uid: str, container: str, attempt: int) -> asyncio.Event:
        """Set when that attempt is over, or was over before anybody asked."""
        pod = self._pods.get(uid)
        if pod is None or pod.state is None:
            over = asyncio.Event()
            over.set()
            return over
        event = pod.ends.setdefault((container, attempt), asyncio.Event())
        found = machine.get_container(pod.state, container)
        if found.attempt > attempt or found.stage is machine.Stage.ENDED:
            event.set()
        return event

    def _note_end(self, uid: str, container: str, attempt: int, ended: machine.Ended) -> None:
        pod = self._pods.get(uid)
        if pod is None or pod.state is None:
            return
        pod.state = machine.mark_ended(pod.state, container, attempt, ended)
        pod.ends.setdefault((container, attempt), asyncio.Event()).set()
        self._queue.add(uid)

    # What is done about it

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            try:
                pod = self._pods.get(uid)
                if pod is not None:
                    with logs.context(pod=pod.obj["metadata"]["name"], namespace=pod.obj["metadata"]["namespace"]):
                        await self._sync(uid, pod)
                self._queue.forget(uid)
            except (Conflict, NotFound):
                self._queue.retry(uid)
            except Exception:  # one Pod's trouble must not stop the node
                log.exception("pod not synchronised", extra={"retry_seconds": self._queue.retry(uid)})
            finally:
                self._queue.done(uid)
            await asyncio.sleep(0)

    async def _sync(self, uid: str, pod: _Pod) -> None:
        if pod.gone:
            await self._forget(uid, pod)
            return
        now = self._clock.now()
        if pod.state is None and _is_over(pod.obj):
            if pod.obj["metadata"].get("deletionTimestamp"):
                await self._confirm(pod)
            return
        if pod.state is None:
            pod.state = self._runner.load_state(pod.obj, now, self._note_end)
            if pod.state.refused is not None:
                await self._warn(pod, pod.state.refused.reason, pod.state.refused.message)
        step = machine.decide(pod.obj, pod.state, now)
        pod.state = step.state
        for instruction in step.instructions:
            await self._carry_out(uid, pod, instruction)
        if step.wake_after is not None:
            self._queue.add_after(uid, max(step.wake_after, 0.001))
        await self._report(pod, now)
        if any(isinstance(instruction, Confirm) for instruction in step.instructions):
            await self._confirm(pod)

    async def _carry_out(self, uid: str, pod: _Pod, instruction: machine.Instruction) -> None:
        assert pod.state is not None
        match instruction:
            case Start(container, attempt):
                await self._client.durable(int(pod.obj["metadata"]["resourceVersion"]))
                started, notes = self._runner.start(pod.obj, container, attempt, self._note_end)
                if started is not None:
                    pod.state = machine.mark_started(pod.state, container, attempt, started)
                elif ended := machine.get_container(pod.state, container).ended:
                    await self._warn(pod, "Failed", f"Error: {ended.message}")
                for text in notes:
                    await self._recorder.record(Note(pod.obj, "Approximated", text, action="Starting"), REPORTER)
            case Signal(container, force):
                self._runner.signal(uid, container, force=force)
            case Confirm():
                pass  # after the last report, see _sync

    async def _warn(self, pod: _Pod, reason: str, text: str) -> None:
        await self._recorder.record(Note(pod.obj, reason, text, warning=True, action="Starting"), REPORTER)

    async def _report(self, pod: _Pod, now: datetime) -> None:
        assert pod.state is not None
        meta = pod.obj["metadata"]
        before = pod.obj.get("status") or {}
        after = build_status(pod.obj, pod.state, now)
        changed = {name: after.get(name) for name in _OWN_FIELDS if before.get(name) != after.get(name)}
        if not changed:
            return
        patch = {"metadata": {"uid": meta["uid"]}, "status": changed}
        options = WriteOptions(field_manager=REPORTER)
        where = meta["namespace"]
        new = await self._client.patch(
            PODS, meta["name"], PatchType.MERGE, patch, where, subresource="status", options=options
        )
        # The watch brings it too, later; a pass in between must not report the same again.
        if int(new["metadata"]["resourceVersion"]) > int(pod.obj["metadata"]["resourceVersion"]):
            pod.obj = new

    async def _confirm(self, pod: _Pod) -> None:
        meta = pod.obj["metadata"]
        try:
            await self._client.delete(
                PODS, meta["name"], meta["namespace"], DeleteOptions(grace_seconds=0, uid=meta["uid"])
            )
        except NotFound:
            return
        except StatusError:
            if pod.state is not None:
                pod.state = replace(pod.state, confirmed=False)
            raise

    async def _forget(self, uid: str, pod: _Pod) -> None:
        """The object is gone (perhaps by force): what still runs is killed, the directory goes."""
        self._runner.kill(uid)
        for event in pod.ends.values():
            event.set()
        del self._pods[uid]
        await self._runner.remove(pod.obj)


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
