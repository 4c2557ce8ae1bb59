"""Composes the backend of the REST API's routes, for both modes; imported on demand.

`embedded_backend` builds it on the in-process client, operator mode on an API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import orjson

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import PODS
from trainmaster.apiserver.http.subresources.logs import PodLogs, check_started, check_uid, choose_container
from trainmaster.apiserver.local import LogSource
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.app.rest.checking import build_check
from trainmaster.app.rest.usage import ask_for_usage
from trainmaster.app.settings import Dashboard, Rest
from trainmaster.client.contract import Client, LogOptions
from trainmaster.edge.addresses import TrustedProxies
from trainmaster.edge.limits import EdgeLimits
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.timeline import Now
from trainmaster.rest.callers import Callers
from trainmaster.rest.contract import Backend, Explain, JobTools, PageRules, RestLimits, UsageReads
from trainmaster.rest.logins.logins import Logins
from trainmaster.rest.logins.storage import LoginStorage
from trainmaster.rest.rates import Rates
from trainmaster.rest.services.creation.guide_jobs import CreationRules, GuideJobs
from trainmaster.rest.services.creation.new_jobs import NewJobs
from trainmaster.rest.services.creation.server_fields import ReadFields, ServerFields
from trainmaster.rest.services.creation.templates import Templates
from trainmaster.rest.services.files.downloads import Downloads
from trainmaster.rest.services.files.job_files import JobFiles
from trainmaster.rest.services.history import HistoryService
from trainmaster.rest.services.job_reader import JobReader
from trainmaster.rest.services.live.sources import Sources
from trainmaster.rest.services.log_windows import LogWindows
from trainmaster.rest.services.records import ArchivedRecords, NoRecords
from trainmaster.rest.services.streams import Streams
from trainmaster.rest.services.tenants import TenantService


def build_log_source(registry: ObjectRegistry, logs: PodLogs) -> LogSource:
    """Logs for the in-process client, with the API server's error message if there is none."""

    async def read(name: str, namespace: str, options: LogOptions) -> AsyncIterator[bytes]:
        kind = registry.catalogue.find(PODS)
        assert kind is not None
        raw: Object = orjson.loads(registry.get(kind, namespace, name).value)
        pod = Pod(raw)
        check_uid(pod, options.uid)
        container = choose_container(pod, options.container)
        if not pod.node:
            return
        check_started(pod, container, previous=options.previous)
        async for piece in logs.read(raw, container, options):
            yield piece

    return read


@dataclass(frozen=True, slots=True)
class Folders:
    templates: Path | None
    """The administrator's templates."""
    history: Path | None
    bundles: Path | None
    """Where code too large for a ConfigMap is stored; None on a cluster."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    rest: Rest
    edge: EdgeLimits
    dashboard: Dashboard


def build_backend(
    settings: BackendSettings,
    callers: Callers,
    clock: Clock,
    ids: Ids,
    *,
    logins: LoginStorage,
    tenants: TenantService,
    folders: Folders,
    read_fields: ReadFields,
    remind: Callable[[], None],
    check_ready: Callable[[], Awaitable[None]],
) -> Backend:
    """The backend of the routes, for both modes."""
    rest, edge, dashboard = settings.rest, settings.edge, settings.dashboard
    rules = CreationRules(rest.max_nodes, rest.check_code)
    jobs = GuideJobs(Templates(folders.templates), ServerFields(read_fields, clock), clock, rules=rules, remind=remind)
    history = HistoryService(folders.history)
    limits = RestLimits(
        rest.max_body_bytes,
        stranger_body_bytes=edge.stranger_body_bytes,
        proxies=TrustedProxies(edge.trusted_proxies),
    )
    rates = Rates(clock, rest.requests_per_second, rest.request_burst)
    return Backend(
        callers,
        clock,
        ids,
        jobs,
        JobReader(NoRecords() if folders.history is None else ArchivedRecords(folders.history), clock),
        tenants,
        rates,
        check_ready,
        history,
        build_explain(clock),
        _read_nodes,
        _read_queue,
        Streams(edge.watchers, edge.watchers_per_user),
        Sources(clock),
        NewJobs(jobs, history, folders.bundles),
        Logins(callers, logins, clock, ids, read_only=dashboard.read_only),
        LogWindows(clock),
        JobTools(build_check(), JobFiles(folders.history, folders.bundles), Downloads(clock, ids)),
        limits,
        pages=PageRules(dashboard.frame_ancestors, rest.base_path),
        usage=UsageReads(ask_for_usage),
    )


def _load_explain() -> None:
    """Called in a thread, so that the import does not block the event loop."""
    from trainmaster.controllers.explain import gathering, reasons  # noqa: F401


def _load_machine() -> None:
    """Called in a thread, as `_load_explain`."""
    from trainmaster.app.rest import machine  # noqa: F401


async def _read_nodes(client: Client) -> list[Object]:
    await asyncio.to_thread(_load_machine)
    from trainmaster.app.rest import machine

    return await machine.read_nodes(client)


async def _read_queue(client: Client, namespace: str) -> Object:
    await asyncio.to_thread(_load_machine)
    from trainmaster.app.rest import machine

    return await machine.read_queue(client, namespace)


def build_explain(clock: Clock) -> Explain:
    """The explain function; it imports the scheduler on first use."""

    async def explain(client: Client, namespace: str, name: str) -> Fields | None:
        await asyncio.to_thread(_load_explain)
        from trainmaster.controllers.explain import gathering, reasons

        view = await gathering.collect(client, namespace)
        now = Now(clock.now())
        # In a thread, because a long queue takes a second.
        work = partial(reasons.explain, view, namespace, name, now, with_shown=False)
        found = await asyncio.to_thread(work)
        return None if found is None else asdict(found)

    return explain
