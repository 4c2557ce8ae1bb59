"""Composes the API server of a home, without sockets: the registry, authentication and authorization on one store."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import SERVICE_ACCOUNTS
from trainmaster.api.training.pace import CountSinceStop
from trainmaster.apiserver.admission.drain_marks import DrainMarks
from trainmaster.apiserver.admission.escalation import NoEscalation
from trainmaster.apiserver.admission.sizes import ObjectLimits
from trainmaster.apiserver.admission.submitters import Submitters
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.audit import AuditLog
from trainmaster.apiserver.http.endpoints import Endpoints
from trainmaster.apiserver.http.handlers import Handlers
from trainmaster.apiserver.http.server import ApiServer
from trainmaster.apiserver.http.streams.contract import PodStreams
from trainmaster.apiserver.http.subresources.logs import PodLogs
from trainmaster.apiserver.http.subresources.token_requests import build_token_creator
from trainmaster.apiserver.http.usage import Meter
from trainmaster.apiserver.local import SYSTEM
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.apiserver.state import Reviewer
from trainmaster.apiserver.stored_policies import StorePolicies
from trainmaster.app.health import CommitCheck, declare_gauges
from trainmaster.app.home.credentials import OWNER, ensure_secret, load_static_tokens
from trainmaster.app.home.folder import Home
from trainmaster.app.process import raise_descriptor_limit
from trainmaster.app.settings import Settings, Source
from trainmaster.auth.identities import Credentials
from trainmaster.auth.pki import Pki, build_server_tls
from trainmaster.auth.rbac import RbacAuthorizer
from trainmaster.auth.reviews import Reviews
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.metrics import Metrics
from trainmaster.store.contract import Store

if TYPE_CHECKING:
    from trainmaster.history.curves.usage import UsagePoint
    from trainmaster.jobs.models.pods import Pod
    from trainmaster.jobs.usage import PodMeasurement


@dataclass(frozen=True, slots=True)
class World:
    """Dependencies that all parts share and that tests replace."""

    home: Home
    settings: Settings
    environ: Mapping[str, str]
    clock: Clock
    ids: Ids
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Where settings come from; "default" for those that are not named."""


class UsageAccess(Protocol):
    """What Pods use, for the REST API."""

    async def measure(self, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
        """Of running Pods, by uid."""
        ...

    def list_pending(self, uid: str) -> Sequence[UsagePoint]:
        """Of a job, what is not in the archive yet."""
        ...


CollectEvidence = Callable[[str], Awaitable[Object | None]]
"""(uid of a job) -> the evidence of its ranks; None if none of them runs."""


@dataclass(frozen=True, slots=True)
class PodConnections:
    """Access to Pods (logs, exec), if this process runs any."""

    logs: PodLogs | None = None
    streams: PodStreams | None = None
    meter: Meter | None = None
    usage: UsageAccess | None = None
    collect_evidence: CollectEvidence | None = None
    count_since_stop: CountSinceStop | None = None


NO_PODS = PodConnections()


class ControlPlane:
    """The registry, authentication and authorization on one store."""

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
        self.registry.state.admission.add(Submitters(OWNER.user))
        self.registry.state.admission.add(DrainMarks(SYSTEM.user))
        self.registry.serve_subresource(SERVICE_ACCOUNTS, "token", build_token_creator(accounts))

    @functools.cached_property
    def audit(self) -> AuditLog | None:
        """The audit log, shared by the API server, which closes it, and the REST API."""
        settings = self.world.settings.audit
        if not settings.enabled:
            return None
        return AuditLog(self.world.home.audit_log, max_bytes=settings.max_bytes, keep=settings.keep)

    def build_server(self, pki: Pki, port: int, pods: PodConnections = NO_PODS) -> ApiServer:
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
            count_since_stop=pods.count_since_stop,
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
