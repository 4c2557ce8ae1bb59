"""Operator mode: composes our controllers on a Kubernetes cluster.

    client -> watch caches -> status server, webhooks, records -> leader lease -> shipped runtimes -> history
           -> controllers

Runs the TrainJob controller instead of upstream's, with retention, and the kinds of training-operator that it is told
to run; or, as a companion, only retention of all kinds beside upstream's managers. The controllers are the same as
embedded, with a watch cache as their view, plans applied in order over HTTP, and the cluster's JobSet, Job and
scheduler below. Only a history, if requested, is stored on this machine: everything else is read from the cluster, so
the operator may die at any point. Caches are filled before the lease is requested, so a successor starts immediately.

Every write as the leader is checked against the lease right before it is sent. At the end the controllers are stopped,
then the lease is given back, and only then is the rest brought to its end: events are written, ports drained.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainmaster.api.lifecycle.stalls import StallRules
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOB_SETS,
    LEASES,
    PODS,
    PRIORITY_CLASSES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.status import StatusError
from trainmaster.app.collector import collect_in_quiet_moments, stop_automatic_collection
from trainmaster.app.gauges import declare_history
from trainmaster.app.process import find_loop_factory, stop_on_signals
from trainmaster.auth.pki import ServerKeys
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import Client
from trainmaster.client.events import BufferedEventRecorder
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.server_time import ServerClock
from trainmaster.client.view import View
from trainmaster.controllers.frameworks.contract import FrameworkContext, ProgressServer
from trainmaster.controllers.install import install_runtimes
from trainmaster.controllers.lifecycle import derived
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.retention import ARCHIVE
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.controllers.v1jobs.reconciler import build_controller as build_v1_controller
from trainmaster.engine.apply import apply_one_by_one
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import QueuedRecorder
from trainmaster.engine.lease import Lease, LeaseSettings, LeaseTimes
from trainmaster.engine.manager import Manager
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.v1jobs import MODELS, V1Job
from trainmaster.kit import logs
from trainmaster.kit.attendance import Attendance
from trainmaster.kit.clock import Clock, SystemClock
from trainmaster.kit.ids import Ids, SystemIds
from trainmaster.kit.pace import Pace
from trainmaster.kit.scopes import Scope
from trainmaster.operator.caching import build_cache
from trainmaster.operator.definitions import DefinitionsCheck
from trainmaster.operator.lifecycle import (
    DeletionRecorder,
    build_lifecycle,
    check_v1_definitions,
    list_read,
    list_unpublished,
)
from trainmaster.operator.monitoring.health import CacheCheck, HealthPort, HealthSettings
from trainmaster.operator.monitoring.insight import Insight
from trainmaster.operator.monitoring.metrics_server import MetricsSettings, running_census, serving_metrics
from trainmaster.operator.monitoring.telling import Telling, tell_end, telling
from trainmaster.operator.monitoring.troubles import OperatorTrouble, explain_refusal, explain_watches
from trainmaster.operator.monitoring.work_metrics import declare_leading, declare_passes, declare_queues
from trainmaster.operator.names import NAMESPACE
from trainmaster.operator.others import OtherWriters
from trainmaster.operator.records.settings import RecordsSettings
from trainmaster.operator.rights import COMPANION_LEASE_NAME, LEASE_NAME
from trainmaster.operator.starting import StartSteps
from trainmaster.operator.status_keys import ensure_keys
from trainmaster.operator.status_server import StatusServer
from trainmaster.operator.tls import build_context, read_end
from trainmaster.operator.upstream import check_no_other_owner, check_pod_groups
from trainmaster.operator.webhooks.keys import MountedKeys
from trainmaster.operator.webhooks.serving import Webhooks, WebhookSettings, check_files, serving_webhooks
from trainmaster.version import __version__

if TYPE_CHECKING:
    from trainmaster.history.keeper import Keeper
    from trainmaster.operator.records.serving import ServingRecords

log = logging.getLogger(__name__)

PATIENCE = 75.0
"""Seconds within which an API server must answer; it gives up a request itself after 60."""
POD_GROUPS = (COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS)
"""Each is served only if its scheduler is installed."""
OPTIONAL = (*POD_GROUPS, PRIORITY_CLASSES, HORIZONTAL_POD_AUTOSCALERS, EVENTS)
"""The operator also works where these are not served, or may not be read."""


@dataclass(frozen=True, slots=True)
class ProgressSettings:
    """Where training code reports to."""

    url: str
    """The URL for Pods: https, a name that resolves for them, a port."""
    namespace: str
    """The namespace of the Secret with the certificate."""
    host: str = ""
    """The address to listen on; "" is all."""
    port: int = 10443


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    namespaces: tuple[str, ...] = ()
    """The only namespaces to work in; () is all."""
    lease_namespace: str = ""
    """The namespace of the leader's Lease; "" disables leader election, and only one operator may run."""
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    runtimes: bool = True
    """Install the shipped ClusterTrainingRuntimes at start."""
    counts_delay: float = 2.0
    """Seconds by which `jobsStatus` may lag behind a running JobSet, whose changes come in bursts; one pass handles a
    burst."""
    companion: bool = False
    """Only retention: upstream's managers, or somebody else, run the jobs."""
    history: Path | None = None
    """Directory of the archive; None for none."""
    progress: ProgressSettings | None = None
    """None: containers get no status server, like upstream with the feature gate `TrainJobStatus` off."""
    webhooks: WebhookSettings | None = None
    """None: nothing is checked when jobs and runtimes are written."""
    workers: int = 8
    """TrainJobs handled in parallel; each mostly waits for the API server."""
    health: HealthSettings | None = None
    """Where probes are answered; None: nowhere."""
    metrics: MetricsSettings | None = None
    """Where Prometheus reads; None: nowhere."""
    records: RecordsSettings | None = None
    """Where API servers read records of jobs, if there is a history; None: nowhere."""
    requests_per_second: float = 0.0
    """Of the API server, on average; 0 is no limit. The Lease is never delayed."""
    request_burst: int = 100
    v1_jobs: tuple[type[V1Job], ...] = ()
    """The kinds of `kubeflow.org/v1` that belong to this operator; training-operator must not run them."""
    gang_scheduler: str = ""
    """The scheduler that gets a PodGroup for each of these jobs: `volcano`, or one with the coscheduling plugin."""
    stalls: StallRules = field(default_factory=StallRules)
    """When a job counts as stalled."""
    pod: Object | None = None
    """The Pod in which this process runs, if it knows that: what events about this operator are about."""

    @property
    def about(self) -> Object:
        """The object of events about this operator."""
        if self.pod is not None:
            return self.pod
        meta = {"name": self.lease_name, "namespace": self.lease_namespace or NAMESPACE}
        return {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": meta}

    @property
    def lease_name(self) -> str:
        return COMPANION_LEASE_NAME if self.companion else LEASE_NAME

    @property
    def models(self) -> tuple[type[TrainingJob], ...]:
        """The kinds whose jobs are retained and archived."""
        return (TrainJob, *(MODELS if self.companion else self.v1_jobs))

    @property
    def optional(self) -> tuple[GVR, ...]:
        """Upstream's managers are installed separately, so a companion may find some of their kinds only. Where the
        operator replaces training-operator, there may be no JobSets; TrainJobs then report that."""
        if self.companion:
            return (*(model.gvr for model in self.models), TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, JOB_SETS)
        return (*OPTIONAL, JOB_SETS) if self.v1_jobs else OPTIONAL


@dataclass(frozen=True, slots=True)
class Operator:
    cache: WatchCache
    manager: Manager


@asynccontextmanager
async def running_operator(
    client: HttpClient, settings: OperatorSettings, *, clock: Clock, ids: Ids
) -> AsyncIterator[Operator]:
    """Entering returns once it is leader and working. LeaseLost ends the body."""
    check_machine(settings, clock)
    insight, attendance = Insight(clock), Attendance(clock)
    metrics, readiness = insight.metrics, insight.readiness
    unlimited = client = insight.count(client)
    async with AsyncExitStack() as stack:
        if settings.health is not None:
            await stack.enter_async_context(HealthPort(readiness, settings.health, clock))
        client = limit_rate(client, settings, clock)
        told = await stack.enter_async_context(telling(client, settings.about, clock))
        readiness.explain_start(told.list_troubles)
        starting = StartSteps(clock, settings.lease_namespace, told.note_start)
        await starting.persist(partial(check_cluster, client, settings))
        progress = None if settings.companion else settings.progress
        keys = None if progress is None else await starting.persist(partial(get_keys, client, progress, clock))
        if settings.metrics is not None:
            await stack.enter_async_context(serving_metrics(metrics, client, settings.metrics, clock, keys))
        reports = None if progress is None or keys is None else ProgressServer(progress.url, keys.ca)
        operated = () if settings.companion else list_operated(settings, reports, attendance)
        cache = build_watched_cache(client, operated, settings, told, clock, ids)
        readiness.add("cache", CacheCheck(cache, clock))
        await stack.enter_async_context(cache)
        await cache.wait_synced()
        if progress is not None and keys is not None:
            await enter_status_server(stack, StatusServer(client, cache, clock), progress, keys)
            insight.add_certificate("progress", partial(read_end, keys.certificate))
        webhooks = await enter_webhooks(stack, starting, client, cache, settings, clock)
        if webhooks is not None:
            insight.add_certificate("webhook", webhooks.read_expiry)
        records = await enter_records(stack, starting, client, settings, insight, clock)
        readiness.finish_start()
        await watch_definitions(stack, client, settings, told, clock)
        lease = build_lease(unlimited, settings, insight, clock, ids)
        if lease is not None:
            told.add(partial(explain_lease, lease, settings.lease_namespace))
        leader, events = await enter_lead(stack, client, lease, attendance, clock)
        if webhooks is not None:
            # First: with a wrong `caBundle`, nobody but our service account may write runtimes.
            await stack.enter_async_context(webhooks.maintained(leader, told))
        if records is not None:
            await stack.enter_async_context(records.maintained(leader, told))
        if settings.runtimes and not settings.companion:
            await starting.persist(partial(install_runtimes, leader))
        recorder = DeletionRecorder(apply_one_by_one(leader, cache.learn))
        deletions = await stack.enter_async_context(running_census(cache, settings.models, metrics, clock))
        keeper = await enter_history(stack, settings, client, cache, recorder, clock)
        if keeper is not None:
            declare_history(metrics, keeper)
        unpublished = await starting.persist(partial(list_unpublished, client, settings.models))
        lifecycle = LifecycleContext(ledger=keeper, unpublished=unpublished, models=settings.models)
        controllers = [*operated, *build_lifecycle(lifecycle, settings.workers)]
        manager = Manager(
            controllers,
            view=cache,
            feed=cache,
            apply=deletions.watch(recorder.apply),
            recorder=QueuedRecorder(events),
            clock=clock,
            metrics=metrics,
            effects={} if keeper is None else {ARCHIVE: keeper.archive},
            meters=declare_queues(metrics, controllers, clock),
        )
        declare_passes(metrics, manager.passes, manager.seconds)
        await stack.enter_async_context(manager.running())
        places = ",".join(settings.namespaces) or "(all)"
        log.info("operating", extra={"action": "operator.ready", "namespaces": places})
        yield Operator(cache, manager)


def build_watched_cache(
    client: Client,
    operated: Sequence[Controller],
    settings: OperatorSettings,
    told: Telling,
    clock: Clock,
    ids: Ids,
) -> WatchCache:
    """What keeps it from being filled is told, and who else works on the same jobs."""
    others = OtherWriters(clock.now())
    cache = build_cache(
        client,
        list_collections(operated, settings),
        namespaces=settings.namespaces,
        optional=settings.optional,
        all_pods=bool(settings.v1_jobs),
        clock=clock,
        ids=ids,
        witness=None if settings.companion else others.notice,
    )
    told.add(partial(explain_watches, cache.watches))
    told.add(others)
    return cache


async def enter_status_server(
    stack: AsyncExitStack, server: StatusServer, progress: ProgressSettings, keys: ServerKeys
) -> None:
    tls = build_context(keys.certificate, keys.key)
    await stack.enter_async_context(server.listening(tls, progress.host, progress.port))


async def enter_history(
    stack: AsyncExitStack,
    settings: OperatorSettings,
    client: Client,
    cache: WatchCache,
    recorder: DeletionRecorder,
    clock: Clock,
) -> Keeper | None:
    if settings.history is None:
        return None
    from trainmaster.operator.records.archiving import running_cluster_history  # noqa: PLC0415  # most have no history

    history = running_cluster_history(settings.history, client, clock, recorder, cache, settings.models)
    return await stack.enter_async_context(history)


def list_operated(
    settings: OperatorSettings, progress: ProgressServer | None, attendance: Attendance | None = None
) -> tuple[Controller, ...]:
    """The controllers that run jobs."""
    cluster = V1Cluster(settings.gang_scheduler, logs_as_messages=True)
    v1_jobs = (build_v1_controller(model, cluster) for model in settings.v1_jobs)
    return (
        build_operated_controller(settings, progress, attendance),
        derived.CONTROLLER,
        *(dataclasses.replace(controller, workers=settings.workers) for controller in v1_jobs),
    )


def list_collections(operated: Sequence[Controller], settings: OperatorSettings) -> list[GVR]:
    """What is cached: the sources of the controllers, and what our own look up."""
    sources = [source.gvr for controller in operated for source in controller.sources]
    found = [*sources, *list_read(settings.models), *((*POD_GROUPS, PODS) if operated else ())]
    if settings.history is not None:
        found.append(JOB_SETS)
    if settings.gang_scheduler:
        found.append(PRIORITY_CLASSES)
    return list(dict.fromkeys(found))


def limit_rate(client: HttpClient, settings: OperatorSettings, clock: Clock) -> HttpClient:
    if not settings.requests_per_second:
        return client
    return client.paced(Pace(clock, per_second=settings.requests_per_second, burst=settings.request_burst))


def check_machine(settings: OperatorSettings, clock: Clock) -> None:
    """Raises OSError with what to do if a file or directory of this machine cannot be used. What is used only once the
    cluster has answered would otherwise be noticed late."""
    if settings.history is not None:
        from trainmaster.operator.records.archiving import check_archive  # noqa: PLC0415  # as below

        check_archive(settings.history)
    if settings.webhooks is not None:
        check_files(settings.webhooks, clock)
    if settings.records is not None and settings.records.directory is not None:
        MountedKeys(settings.records.directory, clock)


async def check_cluster(client: Client, settings: OperatorSettings) -> None:
    """Raises OSError with what to do if this operator must not work on this cluster."""
    await check_no_other_owner(client, settings.v1_jobs, settings.namespaces)
    await check_v1_definitions(client, settings.v1_jobs)
    await check_pod_groups(client, V1Cluster(settings.gang_scheduler), settings.namespaces)


async def watch_definitions(
    stack: AsyncExitStack, client: Client, settings: OperatorSettings, told: Telling, clock: Clock
) -> None:
    """Those of kinds that are not ours are none of a companion's business."""
    if settings.companion:
        return
    check = DefinitionsCheck(client, [model.gvr for model in settings.models], clock)
    await stack.enter_async_context(check.running())
    told.add(check)


def explain_lease(lease: Lease, namespace: str) -> list[OperatorTrouble]:
    return [] if lease.refusal is None else [explain_refusal(lease.refusal, namespace)]


async def enter_webhooks(
    stack: AsyncExitStack,
    starting: StartSteps,
    client: Client,
    cache: WatchCache,
    settings: OperatorSettings,
    clock: Clock,
) -> Webhooks | None:
    if settings.webhooks is None or settings.companion:
        return None
    chosen = settings.webhooks
    serving = partial(serving_webhooks, client, cache, chosen, clock, namespaces=settings.namespaces)
    return await starting.persist(lambda: stack.enter_async_context(serving()))


async def enter_records(
    stack: AsyncExitStack,
    starting: StartSteps,
    client: Client,
    settings: OperatorSettings,
    insight: Insight,
    clock: Clock,
) -> ServingRecords | None:
    if settings.records is None or settings.history is None:
        return None
    from trainmaster.operator.records.serving import serving_records  # noqa: PLC0415  # as above

    serving = partial(serving_records, client, settings.history, settings.records, clock)
    records = await starting.persist(lambda: stack.enter_async_context(serving()))
    insight.add_certificate("records", records.read_expiry)
    return records


def build_lease(
    client: HttpClient, settings: OperatorSettings, insight: Insight, clock: Clock, ids: Ids
) -> Lease | None:
    """`client` has no limits, because renewals must not wait for other requests. None without leader election."""
    if not settings.lease_namespace:
        return None
    name = settings.lease_name
    identity = LeaseSettings(settings.lease_namespace, name, build_identity(ids), settings.lease_times, __version__)
    lease = Lease(client, identity, clock=clock, ids=ids)
    declare_leading(insight.metrics, name, lambda: lease.is_held)
    return lease


async def enter_lead(
    stack: AsyncExitStack, client: HttpClient, lease: Lease | None, attendance: Attendance, clock: Clock
) -> tuple[HttpClient, BufferedEventRecorder]:
    """Returns as the leader: a client for what only a leader may write, and the recorder of its events.

    The recorder ends after the lease was given back, because writing what is left may take a while."""
    component = "trainmaster-operator"
    if lease is None:
        alone = BufferedEventRecorder(client, clock=clock, component=component)
        await stack.enter_async_context(alone)
        await enter_attendance(stack, attendance)
        return client, alone
    events = BufferedEventRecorder(client.fenced(lease.check_reports), clock=clock, component=component)
    await stack.enter_async_context(events)
    await stack.enter_async_context(lease.held())
    await enter_attendance(stack, attendance)
    return client.fenced(lease.check), events


async def enter_attendance(stack: AsyncExitStack, attendance: Attendance) -> None:
    """Counts from now on for how long this process has been leading."""
    attendance.begin()
    scope = await stack.enter_async_context(Scope("attendance"))
    scope.spawn_forever(attendance.run(), name="attendance")


async def get_keys(client: Client, progress: ProgressSettings, clock: Clock) -> ServerKeys:
    host = urlsplit(progress.url).hostname or ""
    return await ensure_keys(client, progress.namespace, [host], clock)


def build_operated_controller(
    settings: OperatorSettings, progress: ProgressServer | None = None, attendance: Attendance | None = None
) -> Controller:
    """The TrainJob controller, with numbers of workers and passes that suit a remote server. `attendance`: since when
    this operator leads; None if that does not matter."""
    news = ChangeDelays(settings.counts_delay)
    stalls = settings.stalls
    if attendance is not None:
        stalls = dataclasses.replace(stalls, count_watched=attendance.count_seconds)
    told = FrameworkContext(
        on_cluster=True, logs_as_messages=True, progress=progress, sees_secrets=False, stalls=stalls
    )
    controller = build_controller(told)
    delays: dict[GVR, Callable[[View, Object], float]] = {
        **{gvr: partial(news.delay_child, gvr) for gvr in (CONFIG_MAPS, JOB_SETS)},
        TRAIN_JOBS: news.delay_trainjob,
        PODS: news.delay_pod,
        EVENTS: news.delay_refusal,
    }
    sources = [
        dataclasses.replace(source, delay=delays[source.gvr]) if source.gvr in delays else source
        for source in controller.sources
    ]
    return dataclasses.replace(controller, sources=tuple(sources), workers=settings.workers)


class ChangeDelays:
    """Which changes can be delayed: counts of a running JobSet, and echoes of our own writes.

    A delay only postpones a pass, so a wrong decision only costs time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._generations: dict[tuple[str, str], tuple[str, int]] = {}

    def delay_trainjob(self, view: View, trainjob: Object) -> float:
        """A TrainJob with an unchanged spec has only a new status or new labels."""
        meta = trainjob["metadata"]
        key = (meta["namespace"], meta["name"])
        if view.find(TRAIN_JOBS, *key) is None:
            self._generations.pop(key, None)
            return 0.0
        seen, now = self._generations.get(key), (meta["uid"], meta.get("generation", 0))
        self._generations[key] = now
        return self._seconds if seen == now else 0.0

    def delay_pod(self, view: View, pod: Object) -> float:
        """Most troubles of Pods pass by themselves; that one is gone may be what a suspended job waits for."""
        meta = pod["metadata"]
        return self._seconds if view.find(PODS, meta["namespace"], meta["name"]) is not None else 0.0

    def delay_refusal(self, view: View, event: Object) -> float:
        """The Job controller tries again, and a quota may have room by then."""
        return self._seconds

    def delay_child(self, gvr: GVR, view: View, child: Object) -> float:
        jobset = JobSet(child)
        if jobset.is_deleting or view.find(gvr, jobset.namespace, jobset.name) is None:
            return 0.0
        return 0.0 if jobset.is_finished or jobset.is_suspended else self._seconds


def build_identity(ids: Ids) -> str:
    """In a Pod the host name is the Pod's; the suffix distinguishes processes of one machine."""
    return f"{socket.gethostname()}_{os.getpid()}_{ids.suffix(8)}"


def run(config: ClusterConfig, settings: OperatorSettings, *, log_level: str, log_form: str) -> None:
    """Runs until SIGTERM or SIGINT. Raises LeaseLost when another process has taken over."""
    logs.setup(level=log_level, form=log_form)
    with asyncio.Runner(loop_factory=find_loop_factory(True)) as runner:
        runner.run(_run(config, settings))


def tell_refusal(config: ClusterConfig, pod: Object, text: str) -> None:
    """Of an operator whose settings were refused, so that it never began: an event about its Pod."""

    async def tell() -> None:
        clock = SystemClock()
        client = HttpClient(config, clock=clock, user_agent=f"trainmaster-operator/{__version__}")
        try:
            await tell_end(client, pod, text, clock)
        finally:
            await client.close()

    asyncio.run(tell())


async def _run(config: ClusterConfig, settings: OperatorSettings) -> None:
    clock = ServerClock(SystemClock())
    agent = f"trainmaster-operator/{__version__}"
    client = HttpClient(config, clock=clock, user_agent=agent, ids=SystemIds(), patience=PATIENCE)
    try:
        await work_until_stopped(client, settings, clock)
    except (StatusError, OSError) as error:
        await tell_end(client, settings.about, str(error), clock)
        raise
    finally:
        await client.close()


def _nothing() -> None:
    return None


async def work_until_stopped(
    client: HttpClient, settings: OperatorSettings, clock: Clock, *, on_ready: Callable[[], None] = _nothing
) -> None:
    """Returns after a signal; `on_ready` is called once it leads and works."""
    with stop_on_signals() as stop:
        # In a separate task: a stop must also end waiting for the cluster and for the lease.
        async with Scope("operator") as scope:
            scope.spawn_forever(_work(client, settings, clock, on_ready), name="operator.work")
            log.info("stopping", extra={"action": "operator.stopping", "signal": await stop.wait()})


async def _work(client: HttpClient, settings: OperatorSettings, clock: Clock, on_ready: Callable[[], None]) -> None:
    async with running_operator(client, settings, clock=clock, ids=SystemIds()):
        stop_automatic_collection()
        on_ready()
        await collect_in_quiet_moments(clock)
