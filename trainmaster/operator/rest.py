"""The REST API in front of any Kubernetes API server (`trainmaster rest`): a cluster, or the server of a home.

It has two identities. Its own, from the kubeconfig or the Pod's service account, reviews tokens, reads what the server
offers and cleans up. Everything that a request does is sent with the caller's own token, so the cluster authorizes it.
(Callers of a foreign identity provider have none and are impersonated.) Only certificates and the port are stored here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from trainmaster.api.meta import Object
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.app.home.folder import Home, HomeError
from trainmaster.app.process import find_loop_factory, raise_descriptor_limit, stop_on_signals
from trainmaster.app.rest.backend import BackendSettings, Folders, build_backend
from trainmaster.app.rest.host import build_home_doctor, list_settings
from trainmaster.app.rest.identities import add_oidc, build_sign_up
from trainmaster.app.rest.serving import (
    WILDCARDS,
    Door,
    build_rest_place,
    build_tls,
    build_url,
    open_listener,
    serving_on_demand,
)
from trainmaster.app.settings import Dashboard, Effective, Rest, Settings, Source
from trainmaster.auth.pki import Pki
from trainmaster.client.contract import ActingIdentity, Client
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.kubeconfig import build_tls as build_client_tls
from trainmaster.client.transport import Transport
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.kit import logs
from trainmaster.kit.clock import Clock, SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import ReviewingCallers
from trainmaster.rest.contract import Backend, Diagnose, HostInfo
from trainmaster.rest.logins.storage import SecretStorage
from trainmaster.rest.oidc import AUTHENTICATED
from trainmaster.rest.services.creation.server_fields import DOCUMENT_PATH, list_fields
from trainmaster.rest.services.creation.sweeping import Sweeper
from trainmaster.rest.services.tenants import TenantService
from trainmaster.version import __version__

log = logging.getLogger(__name__)

DEFAULT_NAMESPACE = "trainmaster-system"
"""That of deploy/rest."""
SETTINGS_GROUPS = ("rest", "dashboard", "limits")
"""The settings that count for this process."""
_AGENT = f"trainmaster-rest/{__version__}"
Ready = Callable[[str, str], None]
"""Called once when requests are accepted: the address, and the file with its CA ("" for a given certificate)."""


@dataclass(frozen=True, slots=True)
class Options:
    state: Path
    """Certificates and the port of the last start."""
    rest: Rest = field(default_factory=Rest)
    dashboard: Dashboard = field(default_factory=Dashboard)
    limits: ApiLimits = field(default_factory=ApiLimits)
    names: tuple[str, ...] = ()
    """Additional names for the certificate."""
    certificate: str = ""
    """Files with a certificate chain and its key, instead of our own."""
    key: str = ""
    templates: Path | None = None
    history: Path | None = None
    logins_namespace: str = DEFAULT_NAMESPACE
    """Where the Secret with the state of logins is kept."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Where settings come from."""
    home: Home | None = None
    """Whose server it stands in front of, instead of a cluster."""


def run(config: ClusterConfig, options: Options, ready: Ready, *, log_level: str, log_form: str) -> None:
    """Serves until SIGTERM or SIGINT. Raises HomeError with one sentence if it cannot start."""
    logs.setup(level=log_level, form=log_form)
    with asyncio.Runner(loop_factory=find_loop_factory(True)) as runner:
        runner.run(_serve_until_stopped(config, options, ready))


async def _serve_until_stopped(config: ClusterConfig, options: Options, ready: Ready) -> None:
    with stop_on_signals() as stop:
        async with serving_rest(config, options, SystemClock()) as (url, ca):
            ready(url, ca)
            log.info("stopping", extra={"action": "rest.stopping", "signal": await stop.wait()})


@asynccontextmanager
async def serving_rest(config: ClusterConfig, options: Options, clock: Clock) -> AsyncIterator[tuple[str, str]]:
    """The address and the file with its CA."""
    # Loaded before reporting readiness, because it will be needed.
    import trainmaster.rest.application  # noqa: F401

    certificate, key, ca = _get_certificate(options, clock)
    home = Home(options.state)
    listener, notes = open_listener(build_rest_place(options.rest), home.find_port("rest"))
    for note in notes:
        log.warning("another port", extra={"action": "rest.port", "note": note})
    home.write_port(listener.getsockname()[1], "rest")
    client = HttpClient(config, clock=clock, user_agent=_AGENT)
    # Without a client certificate, which the server would use instead of the caller's token.
    bare = dataclasses.replace(config, certificate_pem="", key_pem="", token="", token_file="")
    shared = Transport(config.server, tls=build_client_tls(bare), server_name=config.tls_server_name, most=128)
    sweeper = Sweeper(client, clock)
    storage = SecretStorage(client, options.logins_namespace)
    backend = _build(options, client, bare, shared, sweeper, storage, clock)

    async def get_backend() -> Backend:
        return backend

    tls = build_tls(certificate, key)
    gatekeeper = Gatekeeper(options.limits, descriptors=raise_descriptor_limit())
    try:
        async with (
            Scope("rest.parts") as scope,
            serving_on_demand([Door(listener, tls)], get_backend, options.limits, clock, gatekeeper),
        ):
            scope.spawn_forever(sweeper.run(), name="rest.sweep")
            scope.spawn_forever(backend.sources.run(), name="rest.sources")
            yield build_url(listener), ca
    finally:
        shared.close()
        await client.close()


def _build(
    options: Options,
    client: HttpClient,
    bare: ClusterConfig,
    shared: Transport,
    sweeper: Sweeper,
    logins: SecretStorage,
    clock: Clock,
) -> Backend:
    def act(identity: ActingIdentity, token: str) -> HttpClient:
        own = dataclasses.replace(bare, token=token)
        return HttpClient(own, clock=clock, user_agent=_AGENT, transport=shared)

    def act_as(identity: ActingIdentity) -> HttpClient:
        """By impersonation. The cluster adds the group of authenticated users itself, and nobody may claim it."""
        groups = tuple(group for group in identity.groups if group != AUTHENTICATED)
        return client.as_user(dataclasses.replace(identity, groups=groups))

    async def read_fields() -> frozenset[str]:
        return list_fields(orjson.loads((await client.request("GET", DOCUMENT_PATH)).body))

    async def check_ready() -> None:
        await client.request("GET", "/version")

    backend = build_backend(
        BackendSettings(options.rest, options.limits, options.dashboard),
        add_oidc(ReviewingCallers(client, act), options.rest, act_as, clock),
        clock,
        SystemIds(),
        logins=logins,
        tenants=TenantService(client, clock, sign_up=build_sign_up(options.rest), on_cluster=True),
        folders=Folders(options.templates, options.history, None),
        read_fields=read_fields,
        remind=sweeper.remind,
        check_ready=check_ready,
    )
    info = _build_info(options, urlsplit(bare.server).hostname or bare.server, clock)
    return dataclasses.replace(backend, server=info)


def _build_info(options: Options, name: str, clock: Clock) -> HostInfo:
    abilities = ("nodes", "queue", "usage") if options.history is None else ("history", "nodes", "queue", "usage")
    settings = Settings(rest=options.rest, dashboard=options.dashboard, limits=options.limits)
    effective = Effective(settings, options.sources)
    if options.home is not None:
        diagnose = build_home_doctor(options.home, settings)
    else:
        diagnose = _build_doctor(options.logins_namespace, clock)
    return HostInfo("cluster", name, abilities, lambda: list_settings(effective, SETTINGS_GROUPS), diagnose)


def _build_doctor(namespace: str, clock: Clock) -> Diagnose:
    """As `trainmaster doctor --kubeconfig`, with what the caller may see."""

    async def diagnose(client: Client) -> list[Object]:
        # Imported here because it is asked for rarely.
        from trainmaster.operator.monitoring import doctor

        found = await doctor.examine(doctor.ClusterFacts(client, namespace, clock))
        return [dataclasses.asdict(line) for line in found]

    return diagnose


def _get_certificate(options: Options, clock: Clock) -> tuple[str, str, str]:
    """(certificate, key, CA) as files; from our own CA if none is given."""
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if options.certificate:
            return options.certificate, options.key, ""
        address = options.rest.address
        pki = Pki(options.state / "pki", clock)
        pki.ensure([*options.names, *([] if address in WILDCARDS else [address])])
    except OSError as error:
        text = f"the port and certificates cannot be kept in {options.state}: {error.strerror}: choose --state"
        raise HomeError(text) from None
    return str(pki.server.certificate), str(pki.server.key), str(pki.ca.certificate)
