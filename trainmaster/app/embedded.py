"""Embedded mode: starts all parts of `trainmaster up` in order, and stops them in reverse order.

    home lock -> keys -> store -> registry (garbage collection, namespaces) -> controllers and node -> HTTP server
        -> control socket -> the REST API's socket (its code is loaded at the first connection)

Each part is an async context manager: entering returns when it is ready, leaving waits until it has stopped. On
shutdown the HTTP server drains first, and the store closes last.
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
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import asdict, replace

from trainmaster.apiserver.admission.disk_room import StorageRoom
from trainmaster.apiserver.http.server import ApiServer
from trainmaster.apiserver.http.streams.contract import PodStreamError
from trainmaster.apiserver.local import SYSTEM, LocalClient
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.app.collector import collect_in_quiet_moments, stop_automatic_collection
from trainmaster.app.control_plane import NO_PODS, ControlPlane, PodConnections, World
from trainmaster.app.disk_watch import MIB, DiskWatch
from trainmaster.app.home.control import ControlMessage, Operation, serve_backup, serve_control
from trainmaster.app.home.credentials import write_kubeconfig
from trainmaster.app.home.folder import Home, HomeError, ServerInfo
from trainmaster.app.node import open_inventory
from trainmaster.app.process import find_loop_factory, protect_from_oom_killer, stop_on_signals
from trainmaster.app.rest.embedded import serving_rest
from trainmaster.app.rest.serving import WILDCARDS
from trainmaster.app.settings import Effective, Settings
from trainmaster.app.tenant_upgrade import upgrade_tenants
from trainmaster.app.workloads import RunningNode, running_workloads
from trainmaster.auth.pki import Pki
from trainmaster.jobs.draining import find_drain
from trainmaster.kit import failpoints, logs
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.node.agent import NodeAgent
from trainmaster.node.pod_streams import ShimStreams
from trainmaster.store.contract import StoreError
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.store.state import WindowLimits
from trainmaster.version import __version__

log = logging.getLogger(__name__)

Ready = Callable[[ServerInfo, list[str]], None]
"""Called once, when the server is ready, with its address and notes for the user who started it."""

# The commit thread needs the GIL after each statement, and waits this long for it each time the event loop is busy.
SWITCH_SECONDS = 0.0005


def build_pod_access(node: RunningNode) -> PodConnections:
    agent = node.agent
    streams = ShimStreams(agent.supervisor, PodStreamError)
    return PodConnections(
        agent.logs, streams, node.meter, node.usage, agent.evidence.collect, node.signs.count_since_stop
    )


async def report_warm(agent: NodeAgent, _: ControlMessage) -> ControlMessage:
    """For `doctor`."""
    found = [asdict(report) for report in agent.runner.idle.describe()]
    return {"budget": agent.supervisor.zygotes.budget, "found": found}


async def collect_evidence(agent: NodeAgent, request: ControlMessage) -> ControlMessage:
    """For `evidence --now`: of the job with that uid, None if it does not run."""
    return {"evidence": await agent.evidence.collect(str(request["uid"]))}


def run(home: Home, effective: Effective, environ: Mapping[str, str], ready: Ready) -> None:
    """Serves until SIGTERM or SIGINT. HomeError with one sentence if it cannot start."""
    settings = effective.settings
    logs.setup(level=settings.log.level, form=settings.log.form)
    try:
        failpoints.arm(environ.get("TRAINMASTER_FAILPOINTS", ""))
    except ValueError as error:
        raise HomeError(f"TRAINMASTER_FAILPOINTS: {error}") from None
    protect_from_oom_killer()
    world = World(home, settings, environ, SystemClock(), SystemIds(), effective.sources)
    # No garbage is created during the start, so collecting it would only cost time.
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=find_loop_factory(settings.process.uvloop)) as runner:
        try:
            runner.run(_serve_until_stopped(world, ready))
        except StoreError as error:
            raise HomeError(str(error)) from error


async def _serve_until_stopped(world: World, ready: Ready) -> None:
    with stop_on_signals() as stop:
        async with serving(world) as (info, notes), Scope("collector") as scope:
            stop_automatic_collection()
            scope.spawn_forever(collect_in_quiet_moments(world.clock), name="collector")
            ready(info, notes)
            reason = await stop.wait()
            log.info("stopping", extra={"action": "app.stopping", "signal": reason})
            asyncio.get_running_loop().call_later(world.settings.process.stop_seconds, _give_up)


def _give_up() -> None:
    """Exits at once if a part hangs while stopping. All acknowledged writes are on disk, so nothing is lost."""
    log.error("stopping took too long, ending at once", extra={"action": "app.gave_up"})
    os._exit(1)


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[tuple[ServerInfo, list[str]]]:
    """Runs the control plane of one home. Yields the server's address, when it is ready, and notes for the owner."""
    home, settings = world.home, world.settings
    started = format_time(world.clock.now())
    info = ServerInfo(
        os.getpid(), __version__, str(home.root), started=started, python=sys.prefix, warm=settings.node.warm
    )
    with home.hold(info):
        async with AsyncExitStack() as stack:
            inventory = stack.enter_context(closing(open_inventory(home.pods))) if settings.process.workloads else None
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
            pods, notes = NO_PODS, list[str]()
            operations: dict[str, Operation] = {"backup": functools.partial(serve_backup, store)}
            if inventory is not None:
                damage = store.damage.describe() if store.damage is not None else ""
                node = await stack.enter_async_context(
                    running_workloads(
                        api.registry, home, settings, world.environ, world.clock, api.metrics, inventory, damage
                    )
                )
                pods = build_pod_access(node)
                operations["warm"] = functools.partial(report_warm, node.agent)
                operations["evidence"] = functools.partial(collect_evidence, node.agent)
                notes += await _describe_drain(LocalClient(api.registry))
            port, more = choose_port(home, settings)
            notes += more
            if store.damage is not None:
                notes.append(store.damage.describe())
            if disk.shortage:
                notes.append(disk.shortage)
            server = await stack.enter_async_context(_listen(api.build_server(pki, port, pods), settings))
            home.write_port(server.address[1])
            url = _advertised_url(server)
            write_kubeconfig(home, url, pki.ca.certificate, world.ids)
            await stack.enter_async_context(serve_control(home.root, operations))
            if settings.rest.enabled:
                found = await stack.enter_async_context(serving_rest(api, pki, pods, notes))
                info = replace(info, rest=found.rest, dashboard=found.dashboard)
            info = replace(info, server=url, kubeconfig=str(home.kubeconfig))
            home.write_info(info)
            log.info("serving", extra={"action": "app.serving", "server": url, "revision": store.revision})
            yield info, notes


async def _describe_drain(client: LocalClient) -> list[str]:
    drain = await find_drain(client)
    return [] if drain is None else [f"the machine is {drain.describe()}: nothing starts until `trainmaster undrain`"]


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
    """The port to listen on, and notes about it for the owner."""
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
