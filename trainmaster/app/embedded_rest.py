"""The REST API of embedded mode, put together: on the in-process client, with the home's templates and history.

Its own identity reviews tokens and sweeps; everything else happens as whoever calls. The sweep needs no web framework
and begins with the server, so that what a crash left is found although nobody calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from trainmaster import __version__
from trainmaster.apiserver.http.logs import PodLogs
from trainmaster.apiserver.local import LocalClient
from trainmaster.app.rest import (
    build_backend,
    build_log_source,
    build_tls,
    build_url,
    open_listener,
    serving_on_demand,
)
from trainmaster.auth.pki import Pki
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import ReviewingCallers
from trainmaster.rest.contract import Backend
from trainmaster.rest.services.offers import OVERRIDES, PATCHES
from trainmaster.rest.services.records import ArchivedRecords
from trainmaster.rest.services.sweeping import Sweeper
from trainmaster.rest.services.tenants import TenantDesk

if TYPE_CHECKING:
    from trainmaster.app.embedded import ControlPlane


@asynccontextmanager
async def serving_rest(
    api: ControlPlane, pki: Pki, logs: PodLogs | None, notes: list[str]
) -> AsyncIterator[Mapping[str, str]]:
    """Yields where it is, as `trainmaster status` tells it; adds to `notes` what its owner should know."""
    world = api.world
    listener, more = open_listener(world.settings.rest, world.home.find_port("rest"))
    notes += more
    world.home.write_port(listener.getsockname()[1], "rest")
    client = LocalClient(
        api.registry,
        user_agent=f"trainmaster-rest/{__version__}",
        authorizer=api.authorizer,
        log_source=None if logs is None else build_log_source(api.registry, logs),
    )
    sweeper = Sweeper(client, world.clock)
    tls = build_tls(str(pki.server.certificate), str(pki.server.key))
    async with (
        Scope("rest.sweep") as scope,
        serving_on_demand(listener, tls, partial(build_embedded_backend, api, client, sweeper)),
    ):
        scope.spawn_forever(sweeper.run(), name="rest.sweep")
        yield {"url": build_url(listener), "ca": str(pki.ca.certificate)}


def build_embedded_backend(api: ControlPlane, client: LocalClient, sweeper: Sweeper) -> Backend:
    world, store = api.world, api.store
    callers = ReviewingCallers(client, lambda identity, _: client.as_user(identity), lambda: store.revision)
    return build_backend(
        world.settings.rest,
        callers,
        world.clock,
        world.ids,
        tenants=TenantDesk(client, world.clock, sign_up=world.settings.rest.sign_up, on_cluster=False),
        templates=world.home.templates,
        records=ArchivedRecords(world.home.history),
        find_fields=_find_fields,
        remind=sweeper.remind,
        check_ready=_check_ready,
    )


async def _find_fields() -> frozenset[str]:
    """Ours have every shape."""
    return frozenset({OVERRIDES, PATCHES})


async def _check_ready() -> None:
    """The server behind is this process."""
