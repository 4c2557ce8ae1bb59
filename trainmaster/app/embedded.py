"""Embedded mode, put together: everything that starts in `trainmaster up`, in order, and stops in the opposite order.

    home lock -> keys -> store -> registry (garbage collection, namespaces) -> controllers and node -> HTTP server
        -> control socket -> the REST API's socket (its code is loaded at the first connection)

Each part is an async context manager: entering returns when it is ready, leaving waits until it has stopped. So the
order below is the whole truth about starting and stopping. Intake ends first (HTTP drains), the store closes last.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import SERVICE_ACCOUNTS
from trainmaster.apiserver.admission.disk_room import StorageRoom
from trainmaster.apiserver.admission.sizes import ObjectLimits
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.audit import AuditLog
from trainmaster.apiserver.http.endpoints import Endpoints
from trainmaster.apiserver.http.handlers import Handlers
from trainmaster.apiserver.http.server import ApiServer
from trainmaster.apiserver.http.streams.contract import PodStreamError, PodStreams
from trainmaster.apiserver.http.subresources.logs import PodLogs
from trainmaster.apiserver.http.subresources.token_requests import build_token_creator
from trainmaster.apiserver.http.usage import Meter, ResourceUsage
from trainmaster.apiserver.local import SYSTEM, LocalClient
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.apiserver.state import Reviewer
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.app.disk_watch import MIB, DiskWatch
from trainmaster.app.health import CommitCheck, declare_gauges
from trainmaster.app.home.control import serve_control
from trainmaster.app.home.credentials import ensure_secret, load_static_tokens, write_kubeconfig
from trainmaster.app.home.folder import Home, HomeError, ServerInfo
from trainmaster.app.home.maintenance import serve_backup
from trainmaster.app.loops import find_loop_factory
from trainmaster.app.policies import NoEscalation, StorePolicies
from trainmaster.app.process_limits import go_last_without_memory, raise_descriptor_limit
from trainmaster.app.rest.embedded import serving_rest
from trainmaster.app.rest.serving import WILDCARDS
from trainmaster.app.settings import Settings
from trainmaster.app.signals import stop_on_signals
from trainmaster.app.tenant_upgrade import upgrade_tenants
from trainmaster.app.workloads import running_workloads
from trainmaster.auth.identities import Credentials
from trainmaster.auth.pki import Pki, build_server_tls
from trainmaster.auth.rbac import RbacAuthorizer
from trainmaster.auth.reviews import Reviews
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.kit import failpoints, logs
from trainmaster.kit.clock import Clock, SystemClock, format_time
from trainmaster.kit.ids import Ids, SystemIds
from trainmaster.kit.metrics import Metrics
from trainmaster.node.agent import NodeAgent
from trainmaster.node.host.hardware import read_hardware, read_health
from trainmaster.node.host.meter import NodeMeter
from trainmaster.node.pod_streams import ShimStreams
from trainmaster.store.contract import Store, StoreError
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.store.state import WindowLimits
from trainmaster.version import __version__

log = logging.getLogger(__name__)

Ready = Callable[[ServerInfo, list[str]], None]
"""Called once, when requests are answered: who serves, and notes for the person who started it."""

# A full collection walks every container object. After `freeze` those of the start are exempt; the thresholds let the
# young ones die in peace. Requests make few cycles.
_GC_THRESHOLDS = (20_000, 20, 50)
# A commit thread asks for the interpreter once per row, and a busy loop lets it wait this long each time. While a job
# of 2,000 Pods started, durable writes waited up to 540 ms with Python's 5 ms, up to 50 ms with this (one run each).
SWITCH_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class World:
    """What all parts share and tests replace."""

    home: Home
    settings: Settings
    environ: Mapping[str, str]
    clock: Clock
    ids: Ids


@dataclass(frozen=True, slots=True)
class PodDoors:
    """Ways into Pods, where this process runs any."""

    logs: PodLogs | None = None
    streams: PodStreams | None = None
    meter: Meter | None = None


def build_pod_access(agent: NodeAgent, home: Home, clock: Clock) -> PodDoors:
    hardware, health = read_hardware(), functools.partial(read_health, home.root)
    meter = NodeMeter(agent.supervisor, clock, ResourceUsage, hardware=hardware, read_health=health)
    return PodDoors(agent.logs, ShimStreams(agent.supervisor, PodStreamError), meter)


NO_PODS = PodDoors()


def run(home: Home, settings: Settings, environ: Mapping[str, str], ready: Ready) -> None:
    """Serves until SIGTERM or SIGINT. HomeError with one sentence when it cannot start."""
    logs.setup(level=settings.log.level, form=settings.log.form)
    try:
        failpoints.arm(environ.get("TRAINMASTER_FAILPOINTS", ""))
    except ValueError as error:
        raise HomeError(f"TRAINMASTER_FAILPOINTS: {error}") from None
    go_last_without_memory()
    world = World(home, settings, environ, SystemClock(), SystemIds())
    # Nothing made during the start is garbage, so looking for cycles then only costs time.
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=find_loop_factory(settings.process.uvloop)) as runner:
        try:
            runner.run(_serve_until_stopped(world, ready))
        except StoreError as error:
            raise HomeError(str(error)) from error


def tune_collector() -> None:
    """Once everything is up: what is there now stays, and is not looked at again."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


async def _serve_until_stopped(world: World, ready: Ready) -> None:
    with stop_on_signals() as stop:
        async with serving(world) as (info, notes):
            tune_collector()
            ready(info, notes)
            reason = await stop.wait()
            log.info("stopping", extra={"action": "app.stopping", "signal": reason})
            asyncio.get_running_loop().call_later(world.settings.process.stop_seconds, _give_up)


def _give_up() -> None:
    """A part hangs while stopping. Everything acknowledged is on disk, so ending hard loses nothing."""
    log.error("stopping took too long, ending at once", extra={"action": "app.gave_up"})
    os._exit(1)


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[tuple[ServerInfo, list[str]]]:
    """The whole control plane of one home, ready to answer. Yields who serves it and notes for its owner."""
    home, settings = world.home, world.settings
    info = ServerInfo(os.getpid(), __version__, str(home.root), started=format_time(world.clock.now()))
    with home.hold(info):
        async with AsyncExitStack() as stack:
            pki = Pki(home.pki, world.clock)
            pki.ensure(_certificate_names(settings))
            store = await stack.enter_async_context(SqliteStore.open(home.store, world.clock, _store_options(settings)))
            api = ControlPlane(world, store)
            stack.callback(api.close)
            disk = DiskWatch(home, store, world.clock, settings.storage.reserve_mib * MIB)
            await stack.enter_async_context(disk.running())
            api.registry.state.admission.add(StorageRoom(disk.find_shortage, SYSTEM.user))
            await stack.enter_async_context(api.registry.running(pki.ca.certificate.read_text()))
            ensure_built_ins(api.registry)
            await upgrade_tenants(LocalClient(api.registry), api.registry)
            pods = NO_PODS
            if settings.process.workloads:
                damage = store.damage.describe() if store.damage is not None else ""
                agent = await stack.enter_async_context(
                    running_workloads(api.registry, home, settings, world.environ, world.clock, api.metrics, damage)
                )
                pods = build_pod_access(agent, home, world.clock)
            port, notes = choose_port(home, settings)
            if store.damage is not None:
                notes.append(store.damage.describe())
            if disk.shortage:
                notes.append(disk.shortage)
            server = await stack.enter_async_context(_listen(api.build_server(pki, port, pods), settings))
            home.write_port(server.address[1])
            url = _advertised_url(server)
            write_kubeconfig(home, url, pki.ca.certificate, world.ids)
            operations = {"backup": functools.partial(serve_backup, store)}
            await stack.enter_async_context(serve_control(home.root, operations))
            rest: Mapping[str, str] = {}
            if settings.rest.enabled:
                rest = await stack.enter_async_context(serving_rest(api, pki, pods.logs, notes))
            info = ServerInfo(info.pid, info.version, info.home, url, str(home.kubeconfig), info.started, rest)
            home.write_info(info)
            log.info("serving", extra={"action": "app.serving", "server": url, "revision": store.revision})
            yield info, notes


class ControlPlane:
    """Registry, identities and permissions on one store; no sockets."""

    def __init__(self, world: World, store: Store) -> None:
        self.world = world
        self.store = store
        self.metrics = Metrics()
        self.gatekeeper = Gatekeeper(world.settings.limits, descriptors=raise_descriptor_limit())
        declare_gauges(self.metrics, store)
        policies = StorePolicies(store)
        self.authorizer = RbacAuthorizer(policies)
        signing = ensure_secret(world.home, "service-accounts.secret", world.ids).encode()
        accounts = ServiceAccountTokens(signing, policies, clock=world.clock, ids=world.ids)
        self.authenticator = Credentials([load_static_tokens(world.home, world.ids), accounts])
        reviews = Reviews(self.authenticator, self.authorizer)
        limits = world.settings.limits
        self.registry = ObjectRegistry(
            store,
            catalogue.build(),
            world.clock,
            world.ids,
            reviewers=_build_reviewers(reviews),
            limits=ObjectLimits(limits.object_bytes, limits.object_values),
        )
        self.registry.state.admission.add(NoEscalation(self.authorizer))
        self.registry.serve_subresource(SERVICE_ACCOUNTS, "token", build_token_creator(accounts))

    @functools.cached_property
    def audit(self) -> AuditLog | None:
        """One file for the API server, which closes it, and REST."""
        settings = self.world.settings.audit
        if not settings.enabled:
            return None
        return AuditLog(self.world.home.audit_log, max_bytes=settings.max_bytes, keep=settings.keep)

    def build_server(self, pki: Pki, port: int, pods: PodDoors = NO_PODS) -> ApiServer:
        world, settings = self.world, self.world.settings
        kinds = self.registry.catalogue
        access = Access(self.authenticator, self.authorizer)
        endpoints = Endpoints(kinds, self.metrics, ready={"store": CommitCheck(self.store, world.clock)})
        handlers = Handlers(
            self.registry,
            kinds,
            access,
            endpoints,
            clock=world.clock,
            limits=settings.limits,
            logs=pods.logs,
            streams=pods.streams,
            meter=pods.meter,
        )
        return ApiServer(
            handlers,
            self.store,
            clock=world.clock,
            ids=world.ids,
            limits=settings.limits,
            metrics=self.metrics,
            tls=build_server_tls(pki.server, pki.ca.certificate),
            gatekeeper=self.gatekeeper,
            where=(settings.server.address, port),
            audit=self.audit,
        )

    def close(self) -> None:
        self.registry.close()
        self.authorizer.close()


def _build_reviewers(reviews: Reviews) -> dict[GVR, Reviewer]:
    def reviewer(gvr: GVR) -> Reviewer:
        def answer(call: Call, review: Object) -> Object:
            return reviews.answer(gvr, call.identity, review)

        return answer

    return {gvr: reviewer(gvr) for gvr in reviews.answers}


@asynccontextmanager
async def _listen(server: ApiServer, settings: Settings) -> AsyncIterator[ApiServer]:
    try:
        await server.__aenter__()
    except OSError as error:
        where = f"{settings.server.address} port {settings.server.port}"
        raise HomeError(
            f"cannot listen on {where}: {error.strerror}: choose others with --address and --port"
        ) from None
    try:
        yield server
    finally:
        await server.__aexit__(None, None, None)


def choose_port(home: Home, settings: Settings) -> tuple[int, list[str]]:
    """The port to listen on, and what its owner should know about it."""
    if settings.server.port:
        return settings.server.port, []
    last = home.find_port()
    if last is None or _is_free(settings.server.address, last):
        return last or 0, []
    return 0, [f"port {last} of the last start is taken by another program; using a new one, kubeconfig is updated"]


def _is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
        except OSError:
            return False
    return True


def _certificate_names(settings: Settings) -> list[str]:
    address = settings.server.address
    return [*settings.server.names, *(one for one in (address, settings.rest.address) if one not in WILDCARDS)]


def _advertised_url(server: ApiServer) -> str:
    """The address for clients on this machine."""
    host, port = server.address
    host = WILDCARDS.get(host, host)
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _store_options(settings: Settings) -> SqliteOptions:
    storage = settings.storage
    return SqliteOptions(
        limits=WindowLimits(storage.window_events, storage.window_bytes),
        commit=storage.commit,
        synchronous=storage.synchronous.upper(),
    )
