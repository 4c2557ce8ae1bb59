"""The node agent: follows the Pods bound to this node, runs them, and reports their status.

For each Pod it keeps a `PodState`. After each change (of the Pod object, an observation, or a timer) it asks the pure
state machine what to do, has it done (`performing`) and writes changes of the status. Nothing is started before the Pod
is durable. When the agent stops, processes keep running; a new agent finds them through the Pod directories and adopts
them: the state is a function of the Pod object and its directory, so a crash at any point loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WatchEvent, WriteOptions
from trainmaster.client.follow import follow
from trainmaster.client.view import RestingView
from trainmaster.engine.events import Recorder
from trainmaster.engine.queue import WorkQueue
from trainmaster.history.lost_files import describe_lost
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit import logs
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.node.disk.eviction import Eviction
from trainmaster.node.disk.guard import GuardActions, GuardedPod, StorageGuard
from trainmaster.node.disk.usage import DiskUsage
from trainmaster.node.disk.write_pacing import WritePacer
from trainmaster.node.evidence.examination import ContainerExaminer
from trainmaster.node.evidence.job_evidence import JobEvidence
from trainmaster.node.host.pids_report import PidsReport
from trainmaster.node.host.registration import register_node
from trainmaster.node.launch.sandboxes import name_tenant_group
from trainmaster.node.logs.end_signal import EndSignal
from trainmaster.node.logs.inotify import Inotify
from trainmaster.node.logs.pod_logs import CriLogReader
from trainmaster.node.machine import state as states
from trainmaster.node.machine.decide import decide
from trainmaster.node.machine.outcome import decide_phase, end_pod
from trainmaster.node.machine.outcome import is_over as is_finished
from trainmaster.node.machine.state import ContainerStage, Ending
from trainmaster.node.machine.steps import Confirm
from trainmaster.node.network.leases import NetworkLeases, name_home
from trainmaster.node.network.service_names import ServiceNames
from trainmaster.node.performing import REPORTER, Performer
from trainmaster.node.recovery import note_ended, note_lost, read_time
from trainmaster.node.runner import NodeSettings, PodRunner, build_launcher
from trainmaster.node.shims.access import ShimAccess
from trainmaster.node.shims.errands import ErrandRunner
from trainmaster.node.shims.link import ShimError
from trainmaster.node.shims.supervisor import AttemptEnded, Began, Lost, ShimEvent, Supervisor
from trainmaster.node.status import StatusFacts, build_status
from trainmaster.node.tracked import RestingPods, TrackedPod, track
from trainmaster.node.workloads import Workloads
from trainmaster.shim.protocol import PLAIN
from trainmaster.shim.sandbox.cgroups import read_hierarchies

log = logging.getLogger(__name__)

EVICTED = "Evicted"
PATIENCE = 2.0
"""Seconds that a status update waits for containers that are being started, because it can usually report them as
running."""
_OWN_FIELDS = (
    "phase",
    "conditions",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "reason",
    "message",
    "containerStatuses",
    "initContainerStatuses",
)


class NodeAgent:
    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        settings: NodeSettings,
        resting: RestingView | None = None,
    ) -> None:
        """`resting`: where Pods at rest are listed apart."""
        self._client = client
        self._clock = clock
        self._settings = settings
        self._pods: dict[str, TrackedPod] = {}
        self._resting = RestingPods(resting, settings.name)
        self._expected: dict[str, TrackedPod] | None = {}
        """Pods whose logs are followed before the first list of Pods has arrived; None after that."""
        self._leaving: dict[str, set[str]] = {}
        """By gang: deleted Pods whose processes may still run."""
        self._stuck: set[str] = set()
        """Pods without an object whose killed processes the kernel has not ended yet."""
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._supervisor = Supervisor(settings.root, self._note, settings.level, settings.warm.budget)
        self._workloads = workloads = Workloads(client)
        places = NetworkLeases(settings.root, client, workloads, settings.level, settings.egress_routes, settings.hide)
        self._errands = ErrandRunner(self._supervisor, places, os.geteuid())
        usage = DiskUsage(clock)
        self._launcher = build_launcher(
            client, workloads, clock, settings, self._evict, self._errands, self._announce, usage
        )
        self.runner = PodRunner(settings, self._supervisor, self._launcher, places, clock)
        self._names = ServiceNames(client, clock, places, lambda: [pod.obj for pod in self._pods.values()])
        access = ShimAccess(self._supervisor)
        self._performer = Performer(client, recorder, self.runner, access, clock, self._queue)
        self.evidence = JobEvidence(
            client,
            workloads,
            ContainerExaminer(self._supervisor),
            clock,
            self._pods,
            settings.results,
            self._supervisor.get_paths,
        )
        self._logs: CriLogReader | None = None
        actions = GuardActions(self._list_guarded, self._carry_out, self._drop_scratch, self._list_kept)
        self._guard = StorageGuard(
            client,
            clock,
            usage,
            actions,
            disk=settings.root,
            claims=settings.claims,
            environments=settings.environments,
            min_free=settings.min_free_disk,
        )

    @property
    def logs(self) -> CriLogReader:
        assert self._logs is not None, "the agent runs before logs are read"
        return self._logs

    @property
    def supervisor(self) -> Supervisor:
        return self._supervisor

    def list_running(self) -> list[Pod]:
        """The Pods that run here."""
        return [pod.obj for pod in self._pods.values() if pod.obj.is_running]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[NodeAgent]:
        inotify = Inotify()
        self._logs = CriLogReader(self._settings.root, inotify, self._get_end_signal, self._clock)
        try:
            async with self._supervisor, self._launcher.running(), Scope("node") as scope:
                self._performer.attach(scope)
                self.evidence.attach(scope, self._queue.add)
                await register_node(self._client, self._settings.name, self._clock.now())
                if self._settings.level != PLAIN:
                    await self._names.load()
                    scope.spawn_forever(self._names.follow(), name="node.services")
                    scope.spawn_forever(self._names.work(), name="node.names")
                home, hierarchies = name_home(self._settings.root), read_hierarchies()
                pids = PidsReport(self._client, self._clock, home, hierarchies)
                scope.spawn_forever(pids.work(), name="node.pids")
                pacer = WritePacer(
                    self._clock,
                    self._list_running,
                    self._supervisor.pause,
                    rate=self._settings.tenant_write_rate,
                    base=hierarchies.unified,
                    prefix=name_tenant_group(home, ""),
                )
                scope.spawn_forever(pacer.work(), name="node.writes")
                scope.spawn_forever(self._follow(), name="node.pods")
                scope.spawn_forever(self._guard.work(), name="node.disk")
                scope.spawn_guarded(self.runner.idle.work(), name="node.warm")
                for number in range(self._settings.workers):
                    scope.spawn_forever(self._work(), name=f"node.worker.{number}")
                yield self
        finally:
            inotify.close()

    # Observations: Pods change, containers start and exit

    async def _follow(self) -> None:
        async def change(event: WatchEvent) -> None:
            self._take(Pod(event.object), gone=event.type == "DELETED")

        selector = f"spec.nodeName={self._settings.name}"
        source = self._resting.choose_source(self._client)
        await follow(source, self._clock, PODS, self._take_all, change, field_selector=selector)

    async def _take_all(self, items: list[Object]) -> None:
        """Handles a complete list, at the start and after a gap: Pods that are not in it are gone, and are cleaned up.

        Clean-up comes first, so that no new Pod of a gang starts beside processes of an old one.
        """
        present = {obj["metadata"]["uid"] for obj in items} | await self._resting.load()
        for uid, pod in tuple(self._pods.items()):
            if uid not in present:
                self._take(pod.obj, gone=True)
        self._stuck = await self.runner.sweep(present | set(self._pods) | self._errands.list_uids())
        for uid in self._stuck:
            self._queue.add(uid)
        for obj in items:
            self._take(Pod(obj), gone=False)
        for pod in (self._expected or {}).values():
            pod.set_all_ended()
        self._expected = None
        # In parallel, and before anything is decided, so that it is known what runs.
        await asyncio.gather(*(self._adopt(pod) for pod in tuple(self._pods.values())))

    def _take(self, obj: Pod, *, gone: bool) -> None:
        if obj.is_mirror:
            return  # it only mirrors something that runs elsewhere
        uid = obj.uid
        rested = self._resting.drop(uid)
        known = self._pods.get(uid) or (self._expected or {}).pop(uid, None)
        if known is None:
            if gone and not rested:
                return
            known = track(obj)
        else:
            known.take(obj)
        self._pods[uid] = known
        known.gone = known.gone or gone
        if gone:
            self._leaving.setdefault(known.gang, set()).add(uid)
        self._names.note(obj)
        self._queue.add(uid)

    def _get_end_signal(self, obj: Pod, container: str, attempt: int) -> EndSignal:
        """The server may ask before this node has found its running Pods again, so an unknown Pod does not count as
        ended then."""
        uid = obj.uid
        pod = self._pods.get(uid)
        if pod is None and self._expected is not None:
            pod = self._expected.setdefault(uid, track(obj))
        if pod is None:
            over = EndSignal()
            over.set()
            return over
        return pod.get_end_signal(container, attempt)

    def _note(self, event: ShimEvent) -> None:
        """Called by the supervisor, possibly twice for the same event."""
        if self._errands.take(event):
            return
        pod = self._pods.get(event.uid)
        if pod is None:
            return
        now = self._performer.get_moment()
        match event:
            case Began(_, container, attempt, started):
                if started.at:
                    when = read_time(started.at)
                    pod.change(lambda state: states.mark_started(state, container, attempt, when, now))
                    self._names.check(pod.obj)
                if started.note:
                    self._performer.record_start(pod, container, attempt, started.note)
            case AttemptEnded(_, container, attempt, exited):
                self.evidence.note_end(pod, container, attempt, exited)
                pod.change(lambda state: note_ended(state, container, attempt, exited, now))
                pod.set_ended(container, attempt)
            case Lost():
                pod.change(lambda state: note_lost(state, now))
                pod.set_all_ended()
        self._queue.add(event.uid)

    def _evict(self, uid: str, message: str) -> None:
        """Evicts a Pod that exceeded its own limit: a failure, not a disruption, as upstream."""
        self._carry_out(Eviction(uid, message))

    def _carry_out(self, eviction: Eviction) -> None:
        if eviction.is_disruption and self._settings.note_short_disk is not None:
            self._settings.note_short_disk()
        pod = self._pods.get(eviction.uid)
        if pod is not None:
            disruption = "TerminationByKubelet" if eviction.is_disruption else ""
            ending = Ending(EVICTED, eviction.message, disruption, grace=0.0)
            pod.change(lambda state: end_pod(pod.plan, state, ending))
            self._queue.add(pod.uid)

    async def _list_guarded(self) -> list[GuardedPod]:
        """Pods as the storage guard sees them."""
        resting = self._resting.list()
        found = [GuardedPod(pod, f"{self._settings.root}/{pod.uid}", is_over=True) for pod in resting]
        for pod in tuple(self._pods.values()):
            directory = str(self._settings.root / pod.uid)
            workload = await self._workloads.resolve(pod.obj.raw)
            trainjob = workload.trainjob
            results = str(self._settings.results / trainjob) if trainjob and self._settings.results else ""
            over = pod.is_settled or pod.obj.is_over
            shared = (str(self._settings.caches),) if self._settings.caches and workload.is_owners else ()
            claims = (*self._launcher.list_claims(pod.uid), *shared)
            found.append(GuardedPod(pod.obj, directory, over, results, claims))
        return found

    def _list_running(self, namespace: str) -> list[str]:
        pods = self._pods.values()
        return [pod.uid for pod in pods if pod.plan.namespace == namespace and self._supervisor.has_shim(pod.uid)]

    async def _drop_scratch(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if (pod is not None and pod.is_settled) or uid in self._resting:
            await self.runner.drop_scratch(uid)

    async def _list_kept(self, namespace: str) -> list[str]:
        if self._settings.list_kept is None:
            return []
        return [str(path) for path in await asyncio.to_thread(self._settings.list_kept, namespace)]

    def _announce(self, uid: str, sentence: str) -> None:
        """Shows in the Pod's status why its containers are not running yet."""
        pod = self._pods.get(uid)
        if pod is not None:
            pod.change(lambda state: states.mark_preparing(state, sentence))
            # The status has news, so it no longer waits for the start.
            pod.starts_since = None
            self._queue.add(uid)

    # Reactions

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            try:
                pod = self._pods.get(uid)
                if pod is not None:
                    with logs.context(pod=pod.plan.name, namespace=pod.plan.namespace):
                        await self._sync(pod)
                elif uid in self._stuck:
                    await self.runner.clear(uid)
                    self._stuck.discard(uid)
                self._queue.forget(uid)
            except (Conflict, NotFound):
                self._queue.retry(uid)
            except Exception as error:  # one Pod's failure must not stop the node
                log.exception("pod not synchronised", extra={"retry_seconds": self._queue.retry(uid, error)})
            finally:
                self._queue.done(uid)
            await asyncio.sleep(0)

    async def _sync(self, pod: TrackedPod) -> None:
        if pod.gone:
            await self._forget(pod)
            return
        if pod.state is None and pod.obj.is_over:
            await self._settle(pod)
            if pod.plan.deletion is not None:
                await self._confirm(pod)
            return
        if pod.state is None:
            await self._load(pod)
        else:
            await self._launcher.update(pod.obj)
        assert pod.state is not None
        if self._must_wait(pod):
            return
        if await self.evidence.hold(pod):
            return
        now = self._performer.get_moment()
        step = decide(pod.plan, pod.state, now, self._settings.rules)
        pod.state = step.state
        await self._performer.perform(pod, step.instructions)
        if step.wake_after is not None:
            self._queue.add_after(pod.uid, max(step.wake_after, 0.001))
        await self._tell_eviction(pod)
        await self._report(pod)
        if any(isinstance(instruction, Confirm) for instruction in step.instructions):
            await self._confirm(pod)
        if is_finished(pod.plan, pod.state):
            await self._settle(pod)

    async def _tell_eviction(self, pod: TrackedPod) -> None:
        assert pod.state is not None
        ending = pod.state.ending
        if ending is not None and ending.reason == EVICTED and EVICTED not in pod.said:
            pod.said.add(EVICTED)
            await self._performer.record_event(pod, ending.reason, ending.message, warning=True, action="Stopping")

    async def _adopt(self, pod: TrackedPod) -> None:
        """Loads the Pod's state before the workers handle it; they retry if this fails."""
        if pod.state is not None or pod.gone or pod.obj.is_over:
            return
        try:
            await self._load(pod)
        except (StatusError, OSError, ShimError) as error:
            log.warning("pod not adopted yet", extra={"uid": pod.uid, "error": str(error)})

    async def _load(self, pod: TrackedPod) -> None:
        async with pod.loading:
            is_known = pod.state is not None
            if is_known:
                return
            pod.load(await self.runner.load_state(pod.obj, pod.plan, self._performer.get_moment()))
        assert pod.state is not None
        self._names.check(pod.obj)
        if pod.state.ending is not None:
            await self._performer.record_event(pod, pod.state.ending.reason, pod.state.ending.message, warning=True)

    def _must_wait(self, pod: TrackedPod) -> bool:
        """No Pod of a gang starts while processes of its deleted Pods are left."""
        assert pod.state is not None
        begun = any(container.has_run or container.is_alive for container in pod.state.containers)
        return not begun and pod.plan.deletion is None and bool(self._leaving.get(pod.gang, set()) - {pod.uid})

    async def _report(self, pod: TrackedPod) -> None:
        """Writes the status if it differs from the API's; failed writes are retried."""
        assert pod.state is not None
        if self._is_premature(pod):
            return
        is_over = is_finished(pod.plan, pod.state)
        if is_over:
            await self._keep_outputs(pod)
        before = pod.obj.status
        has_failed = is_over and decide_phase(pod.plan, pod.state) == "Failed"
        saved = await self.runner.find_saved(pod.obj) if has_failed and not pod.is_settled else ""
        facts = StatusFacts(self.runner.find_address(pod.obj), rules=self._settings.rules, checkpoint=saved)
        after = build_status(pod.obj, pod.plan, pod.state, self._clock.now(), facts)
        changed = {name: after.get(name) for name in _OWN_FIELDS if before.get(name) != after.get(name)}
        if changed:
            await self._write(pod, changed)

    async def _keep_outputs(self, pod: TrackedPod) -> None:
        """Called before the end is reported, so that outputs are available then. If it fails it is retried before the
        Pod's directory is removed."""
        if pod.is_settled:
            return
        ending = None if pod.state is None else pod.state.ending
        try:
            if ending is not None and ending.reason == EVICTED:
                # It was evicted to free space; keeping its output would not free any.
                await self.runner.drop_scratch(pod.uid)
            lost = await self.runner.keep_outputs(pod.uid)
        except OSError as error:
            text = f"the files in rank 0's working directory and home could not be kept: {error}"
            await self._performer.record_event(pod, "OutputsNotKept", text, warning=True)
            return
        if lost is not None and lost.rank == 0:
            # Other ranks often write the same files as rank 0, whose files are kept.
            await self._performer.record_event(pod, "FilesNotKept", describe_lost([lost]), action="Running")

    def _is_premature(self, pod: TrackedPod) -> bool:
        """Containers are being started: waiting a moment saves a status write."""
        assert pod.state is not None
        if not any(container.stage is ContainerStage.STARTING for container in pod.state.containers):
            pod.starts_since = None
            return False
        if pod.starts_since is None or decide_phase(pod.plan, pod.state) != pod.obj.phase:
            return False
        left = pod.starts_since + PATIENCE - self._clock.boot()
        if left > 0:
            self._queue.add_after(pod.uid, left)
        return left > 0

    async def _write(self, pod: TrackedPod, changed: Object) -> None:
        obj = pod.obj
        patch = {"metadata": {"uid": obj.uid}, "status": changed}
        options = WriteOptions(field_manager=REPORTER, read_only=True)
        new = Pod(
            await self._client.patch(
                PODS, obj.name, PatchType.MERGE, patch, obj.namespace, subresource="status", options=options
            )
        )
        # The watch delivers it later; a pass in between must not report the same again.
        if int(new.resource_version) > int(pod.obj.resource_version):
            pod.take(new)

    async def _settle(self, pod: TrackedPod) -> None:
        """Closes the sandbox of a finished Pod. Its directory stays, for its logs."""
        if not pod.is_settled:
            pod.is_settled = True
            pod.set_all_ended()
            await self.runner.settle(pod.uid)

    async def _confirm(self, pod: TrackedPod) -> None:
        obj = pod.obj
        try:
            await self._client.delete(PODS, obj.name, obj.namespace, DeleteOptions(grace_seconds=0, uid=obj.uid))
        except NotFound:
            return
        except StatusError:
            pod.change(lambda state: replace(state, is_confirmed=False))
            raise

    async def _forget(self, pod: TrackedPod) -> None:
        """The object is deleted (possibly by force): kills what still runs and removes the directory."""
        for task in tuple(pod.tasks):
            task.cancel()
        for event in pod.ends.values():
            event.set()
        self.evidence.forget(pod.uid)
        await self.runner.stop(pod.uid)
        self._let_gang_start(pod)
        await self.runner.remove(pod.obj)
        self._pods.pop(pod.uid, None)

    def _let_gang_start(self, gone: TrackedPod) -> None:
        """Nothing of this Pod runs any more."""
        left = self._leaving.get(gone.gang, set())
        left.discard(gone.uid)
        if not left:
            self._leaving.pop(gone.gang, None)
            for other in self._pods.values():
                if other.gang == gone.gang and other is not gone:
                    self._queue.add(other.uid)
