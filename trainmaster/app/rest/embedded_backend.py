"""Composes the REST API of embedded mode on the in-process client, with the home's templates and history.

Imported after the start (`app.rest.embedded`). Its own identity is used to review tokens and to clean up; everything
else uses the caller's identity.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from trainmaster.api.lifecycle.term_names import DEADLINE_FIELD, TTL_FIELD
from trainmaster.api.tenancy import SYSTEM_NAMESPACE
from trainmaster.apiserver.local import LocalClient
from trainmaster.app.rest.backend import BackendSettings, Folders, build_backend, build_log_source
from trainmaster.app.rest.host import build_home_doctor, list_settings
from trainmaster.app.rest.identities import add_oidc, build_sign_up
from trainmaster.app.rest.pod_logs import build_opener
from trainmaster.app.rest.usage import build_usage
from trainmaster.app.settings import Effective
from trainmaster.app.tenant_leftovers import build_remains
from trainmaster.jobs.compose.trainjob import OVERRIDES, PATCHES
from trainmaster.rest.callers import ReviewingCallers
from trainmaster.rest.contract import Backend, EvidenceAccess, HostInfo
from trainmaster.rest.logins.storage import SecretStorage
from trainmaster.rest.services.creation.sweeping import Sweeper
from trainmaster.rest.services.log_windows import LogWindows
from trainmaster.rest.services.tenants import TenantService
from trainmaster.version import __version__

if TYPE_CHECKING:
    from trainmaster.app.control_plane import ControlPlane, PodConnections


def build_parts(api: ControlPlane, pods: PodConnections) -> tuple[Backend, Sweeper]:
    client = LocalClient(
        api.registry,
        user_agent=f"trainmaster-rest/{__version__}",
        authorizer=api.authorizer,
        log_source=None if pods.logs is None else build_log_source(api.registry, pods.logs),
    )
    sweeper = Sweeper(client, api.world.clock)
    backend = build_embedded_backend(api, client, sweeper)
    if pods.usage is not None:
        backend = replace(backend, usage=build_usage(pods.usage))
    evidence = EvidenceAccess(api.world.home.results, pods.collect_evidence)
    backend = replace(backend, evidence=evidence)
    return backend, sweeper


def build_embedded_backend(api: ControlPlane, client: LocalClient, sweeper: Sweeper) -> Backend:
    world, store = api.world, api.store

    def get_latest() -> int:
        return store.revision

    known = ReviewingCallers(client, lambda identity, _: client.as_user(identity), get_latest)
    callers = add_oidc(known, world.settings.rest, client.as_user, world.clock, get_latest)
    backend = build_backend(
        BackendSettings(world.settings.rest, world.settings.limits, world.settings.dashboard),
        callers,
        world.clock,
        world.ids,
        logins=SecretStorage(client, SYSTEM_NAMESPACE),
        tenants=TenantService(
            client,
            world.clock,
            sign_up=build_sign_up(world.settings.rest),
            on_cluster=False,
            latest=get_latest,
            remains=build_remains(store, world.home.history),
        ),
        folders=Folders(world.home.templates, world.home.history, world.home.bundles),
        read_fields=_read_fields,
        remind=sweeper.remind,
        check_ready=_check_ready,
    )
    info = HostInfo(
        "home",
        socket.gethostname(),
        ("evidence", "history", "nodes", "queue", "usage"),
        lambda: list_settings(Effective(world.settings, world.sources)),
        build_home_doctor(world.home, world.settings),
    )
    log_windows = LogWindows(world.clock, build_opener(world.home.pods))
    audit = None if api.audit is None else api.audit.write
    return replace(backend, server=info, audit=audit, log_windows=log_windows)


async def _read_fields() -> frozenset[str]:
    """Our server supports all fields."""
    return frozenset({OVERRIDES, PATCHES, TTL_FIELD, DEADLINE_FIELD})


async def _check_ready() -> None:
    """Always ready, because the API server is in this process."""
