"""Runs jobs in embedded mode: the controllers and the node, on the in-process client.

Separate from `embedded` because it is optional (`process.workloads = false` is only an API server), and because
operator mode composes these parts differently.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.api.lifecycle.stalls import EVIDENCE, StallRules
from trainmaster.api.meta import Object
from trainmaster.apiserver.admission.deletions import DeletionWitness
from trainmaster.apiserver.http.usage import Meter, ResourceUsage
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.app.health import build_checks
from trainmaster.app.home.folder import Home, HomeError
from trainmaster.app.metrics import IDLE_GPUS
from trainmaster.app.node import build_shape, running_keeper
from trainmaster.app.records import RecordKeeper, running_history
from trainmaster.app.settings import Settings
from trainmaster.bundles import senders
from trainmaster.controllers.drain.reconciler import CONTROLLERS as DRAIN
from trainmaster.controllers.frameworks.contract import FrameworkContext, ProgressServer
from trainmaster.controllers.install import install_runtimes
from trainmaster.controllers.job.reconciler import CONTROLLER as JOB
from trainmaster.controllers.job.reconciler import build_controller as build_job_controller
from trainmaster.controllers.jobset.reconciler import CONTROLLER as JOB_SET
from trainmaster.controllers.lifecycle import census, derived, limits, retention
from trainmaster.controllers.lifecycle.contract import HistoryLedger, LifecycleContext
from trainmaster.controllers.scheduler.reconciler import CONTROLLER as SCHEDULER
from trainmaster.controllers.trainjob.reconciler import CONTROLLER as TRAIN_JOB
from trainmaster.controllers.trainjob.reconciler import build_controller as build_trainjob_controller
from trainmaster.controllers.trainjob.stalls import STALLED
from trainmaster.controllers.v1jobs.reconciler import CONTROLLERS as V1_JOBS
from trainmaster.controllers.volumes.claims import CONTROLLER as CLAIMS
from trainmaster.controllers.volumes.volumes import CONTROLLER as VOLUMES
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.history import disk_holdings as holdings
from trainmaster.history import logs
from trainmaster.history.keeper import Keeper
from trainmaster.jobs.draining import end_drain_of_shutdown
from trainmaster.kit.attendance import Attendance
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.scopes import Scope
from trainmaster.node.agent import NodeAgent
from trainmaster.node.devices.gpus import Inventory
from trainmaster.node.disk.bundle_cleanup import BundleCleanup
from trainmaster.node.disk.results import Results
from trainmaster.node.host.components import Components
from trainmaster.node.host.hardware import measure_memory, read_hardware, read_health
from trainmaster.node.host.isolation import IsolationError, choose_isolation
from trainmaster.node.host.meter import NodeMeter
from trainmaster.node.host.signs import JobSigns, SignReader
from trainmaster.node.machine.outcome import RestartRules
from trainmaster.node.network.addresses import EgressRoutes
from trainmaster.node.runner import NodeSettings
from trainmaster.node.shims.warm import WarmSettings, compute_budget
from trainmaster.shim.sandbox.egress import LAN

if TYPE_CHECKING:
    from trainmaster.app.usage import MakeIdle, NodeUsage
    from trainmaster.history.curves.idle_gpus import FindJob, IdleGpus
    from trainmaster.history.curves.usage import UsagePoint
    from trainmaster.history.curves.usage_keeper import UsageStore
    from trainmaster.jobs.models.pods import Pod
    from trainmaster.jobs.usage import PodMeasurement

log = logging.getLogger(__name__)
_MEASURE_AFTER_SECONDS = 10.0
PROGRESS = ProgressServer("https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)")
"""The API server, at the address where the Pod reaches it: through the relay in its network, or directly."""
JOBS = (TRAIN_JOB, *V1_JOBS, JOB_SET, JOB)
CHAIN = (*JOBS, SCHEDULER, CLAIMS, VOLUMES)
CONTROLLERS = (*CHAIN, *retention.CONTROLLERS, limits.CONTROLLER, derived.CONTROLLER, *DRAIN)
"""All controllers, without a history and with default settings."""


class LateUsage:
    """What Pods use (`app.usage`), whose code is loaded some seconds after the start, or when somebody asks."""

    def __init__(
        self,
        agent: NodeAgent,
        view: LocalView,
        meter: Meter,
        signs: SignReader,
        store: UsageStore | None,
        clock: Clock,
        make_idle: MakeIdle,
    ) -> None:
        self._parts = agent, view, meter, signs, store, clock, make_idle
        self._clock = clock
        self._loading = asyncio.Lock()
        self._made: NodeUsage | None = None

    async def measure(self, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
        return await (await self._get()).measure(pods)

    def list_pending(self, uid: str) -> Sequence[UsagePoint]:
        return () if self._made is None else self._made.list_pending(uid)

    def count_idle_gpus(self) -> int:
        return 0 if self._made is None else self._made.idle.count()

    async def run(self) -> None:
        """For ever. Without a free descriptor the code cannot be loaded; then it is tried again."""
        while True:
            await self._clock.sleep(_MEASURE_AFTER_SECONDS)
            try:
                usage = await self._get()
            except (OSError, ImportError) as error:
                log.warning("usage cannot be measured", extra={"action": "usage.failed", "error": str(error)})
            else:
                await usage.run()

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    async def _get(self) -> NodeUsage:
        async with self._loading:
            if self._made is None:
                await asyncio.to_thread(_load_usage)
                from trainmaster.app.usage import NodeUsage  # noqa: PLC0415 - not needed for a start

                self._made = NodeUsage(*self._parts)
            return self._made


def _load_usage() -> None:
    """Called in a thread, so that the import does not block the event loop."""
    import trainmaster.app.usage  # noqa: F401, PLC0415 - not needed for a start


@dataclass(frozen=True, slots=True)
class RunningNode:
    agent: NodeAgent
    meter: Meter
    usage: LateUsage
    signs: JobSigns


def build_chain(settings: Settings, stalls: StallRules) -> tuple[Controller, ...]:
    """The controllers from TrainJob to Pod, with the installation's settings."""
    jobs = settings.jobs
    pause = BackoffPolicy(
        first=jobs.replacement_seconds, cap=max(jobs.replacement_seconds, jobs.replacement_max_seconds)
    )
    progress = PROGRESS if settings.progress.enabled else None
    context = FrameworkContext(progress=progress, stalls=stalls)
    own = {JOB.name: build_job_controller(pause), TRAIN_JOB.name: build_trainjob_controller(context)}
    return tuple(own.get(item.name, item) for item in CHAIN)


def build_stall_rules(settings: Settings, attendance: Attendance, signs: JobSigns | None = None) -> StallRules:
    """`signs`: None on a cluster, where reports are all there is."""
    own = settings.stalls
    rules = StallRules(own.seconds, own.phase_seconds, own.policy, count_watched=attendance.count_seconds)
    return rules if signs is None else replace(rules, find_sign=signs.find, sees_use=True, keeps_evidence=True)


@asynccontextmanager
async def running_workloads(
    registry: ObjectRegistry,
    home: Home,
    settings: Settings,
    environ: Mapping[str, str],
    clock: Clock,
    metrics: Metrics,
    inventory: Inventory,
    damage: str = "",
) -> AsyncIterator[RunningNode]:
    """Runs the controllers and the node. Leaving the block stops them; processes of Pods continue.

    `damage`: data loss of the store, reported as an Event on the Node.
    """
    client = LocalClient(registry)
    view = LocalView(registry)
    recorder = EventRecorder(client, clock, apply=apply_in_one(client))
    node = await _build_node(home, settings, environ)
    shape = build_shape(settings.node, node.level)
    jobs = view.summary(census.Census)
    census.declare(metrics, jobs, clock)
    make_idle = partial(_make_idle, client, recorder, clock, settings.jobs.idle_gpu_minutes * 60.0)
    deletions = census.Deletions(metrics, view, clock)
    witness = DeletionWitness()
    attendance, signs = Attendance(clock), JobSigns(clock)
    agents: list[NodeAgent] = []
    registry.state.admission.add(witness)
    try:
        await install_runtimes(client, home.templates)
        await _end_drain(client)
        async with running_history(home, settings.history, client, view, clock, witness, metrics) as history:
            lifecycle = LifecycleContext(ledger=history)
            manager = Manager(
                (
                    *build_chain(settings, build_stall_rules(settings, attendance, signs)),
                    *_build_others(lifecycle),
                ),
                view=view,
                feed=view,
                apply=deletions.watch(apply_in_one(client)),
                recorder=recorder,
                clock=clock,
                metrics=metrics,
                effects={retention.ARCHIVE: history.archive, EVIDENCE: partial(_keep_evidence, agents)},
                settled=registry.store.settled_revision,
            )
            async with (
                Scope("at-rest") as scope,
                running_keeper(client, recorder, clock, shape, home.root, inventory) as keeper,
                manager.running(),
                NodeAgent(
                    client, recorder, clock, replace(node, note_short_disk=keeper.note_short_disk), view
                ).running() as agent,
                Components(client, clock, build_checks(registry.store, clock, manager, keeper)).running(),
                BundleCleanup(client, clock, home.bundles, home.history).running(),
                _measuring(agent, view, home, history, signs, clock, make_idle) as running,
            ):
                agents.append(agent)
                scope.spawn_forever(attendance.run(), name="attendance")
                scope.spawn(jobs.count_at_rest(view.list_outlines), name="at-rest.count")
                scope.spawn_forever(_pack(registry, view, history, manager, clock), name="at-rest.pack")
                metrics.gauge(IDLE_GPUS, running.usage.count_idle_gpus)
                if damage:
                    await keeper.warn("StoreDamaged", damage)
                yield running
    finally:
        view.close()


async def _end_drain(client: LocalClient) -> None:
    """Before the controllers: they resume what was suspended."""
    if ended := await end_drain_of_shutdown(client):
        log.info("drain ended", extra={"action": "drain.ended", "since": ended.since})


def _build_others(lifecycle: LifecycleContext) -> tuple[Controller, ...]:
    """The controllers that are not part of the way from a job to its Pods."""
    own = (*retention.build_controllers(lifecycle), limits.build_controller(lifecycle))
    return (*own, derived.CONTROLLER, *DRAIN)


async def _keep_evidence(agents: Sequence[NodeAgent], trainjob: Object) -> bool:
    """Performs the effect, without waiting: many jobs may stall at the same time. `agents`: none before the start."""
    for agent in agents:
        agent.evidence.begin(trainjob["metadata"]["uid"], STALLED)
    return False


def _make_idle(client: LocalClient, recorder: EventRecorder, clock: Clock, seconds: float, find: FindJob) -> IdleGpus:
    from trainmaster.history.curves.idle_gpus import IdleGpus  # noqa: PLC0415 - not needed for a start

    return IdleGpus(client, recorder, find, clock, seconds)


@asynccontextmanager
async def _measuring(
    agent: NodeAgent,
    view: LocalView,
    home: Home,
    history: RecordKeeper,
    signs: JobSigns,
    clock: Clock,
    make_idle: MakeIdle,
) -> AsyncIterator[RunningNode]:
    health = partial(read_health, home.root)
    meter = NodeMeter(agent.supervisor, clock, ResourceUsage, hardware=read_hardware(), read_health=health)
    reader = SignReader(signs, Results(home.results), agent.supervisor.get_logs, meter.has_stopped)
    # A closed archive keeps nothing.
    store = history if isinstance(history, Keeper) else None
    usage = LateUsage(agent, view, meter, reader, store, clock, make_idle)
    agent.evidence.use_meter(usage.measure)
    try:
        async with Scope("usage") as scope:
            scope.spawn_forever(usage.run(), name="usage.measure")
            yield RunningNode(agent, meter, usage, signs)
    finally:
        await usage.close()


async def _pack(
    registry: ObjectRegistry, view: LocalView, history: HistoryLedger, manager: Manager, clock: Clock
) -> None:
    """Packs objects at rest; runs forever."""
    await clock.sleep(60.0)
    # Not needed for a start.
    from trainmaster.apiserver.at_rest import ObjectPacking  # noqa: PLC0415
    from trainmaster.controllers.lifecycle.at_rest import RestRules  # noqa: PLC0415

    await ObjectPacking(registry, clock, RestRules(view, JOBS, history), lambda: manager.is_settled).run()


def _list_kept(home: Home, namespace: str) -> list[Path]:
    """The files of a namespace besides its Pods and claims. Blocking."""
    return [*holdings.list_directories(home.history, namespace), *senders.list_sent(home.bundles, namespace)]


async def _build_node(home: Home, settings: Settings, environ: Mapping[str, str]) -> NodeSettings:
    """HomeError if the requested isolation level is not available."""
    try:
        isolation = await choose_isolation(home.root / "isolation.json", settings.node.isolation)
    except IsolationError as error:
        raise HomeError(str(error)) from None
    wanted = settings.node
    pause = BackoffPolicy(first=wanted.restart_seconds, cap=max(wanted.restart_seconds, wanted.restart_max_seconds))
    return NodeSettings(
        root=home.pods,
        python_prefix=sys.prefix,
        environ=environ,
        bundles=home.bundles,
        results=home.results,
        caches=home.caches,
        model_caches=wanted.model_caches,
        keep_logs=partial(logs.keep, home.history),
        list_kept=partial(_list_kept, home),
        min_free_disk=wanted.min_free_disk_mib * 1024**2,
        tenant_write_rate=wanted.tenant_write_mib * 1024**2,
        rules=RestartRules(restart=pause),
        level=isolation.level,
        egress_routes=EgressRoutes(
            str(home.server_json),
            egress=wanted.egress,
            upstream=wanted.proxy,
            tenant_egress=LAN if wanted.tenant_egress == "all" else wanted.tenant_egress,
            tenant_allow=wanted.tenant_egress_allow,
        ),
        hide=(str(home.root),),
        host_paths=wanted.host_paths,
        packages_mib=wanted.packages_mib,
        warm=WarmSettings(wanted.warm, budget=compute_budget(wanted.warm_mib, measure_memory())),
    )
