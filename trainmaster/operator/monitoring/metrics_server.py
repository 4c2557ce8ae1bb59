"""The operator's metrics for Prometheus: GET /metrics, and nothing else, over HTTPS and for those who may read them.

Every replica serves; only the leader counts jobs. With `secure` off it is plain HTTP for whoever reaches the port, who
then learns how many jobs each namespace has.

The certificate is that of the status server, which is for the same Service and whose CA is in the same Secret. Where
there is none, it is made at the start and kept in memory, as controller-runtime does, and Prometheus cannot verify it.
Or it comes from a directory that somebody keeps current, such as cert-manager.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.auth.issuing import issue_apart
from trainmaster.auth.pki import ServerKeys
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import Client
from trainmaster.controllers.lifecycle import census
from trainmaster.edge.connection import Connection
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer, open_listener
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.scopes import Scope
from trainmaster.operator import tls
from trainmaster.operator.monitoring.metrics_access import MetricsAccess
from trainmaster.operator.monitoring.plain_text import PLAIN, encode_text
from trainmaster.operator.rights import METRICS_PATH
from trainmaster.operator.webhooks.keys import MountedKeys

_LIMITS = EdgeLimits(header_bytes=32 * 1024, body_bytes=0, connections=100)
_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_DAYS = 3650
"""Of a certificate that ends with the process."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    host: str
    """The address to listen on; "" is all."""
    port: int
    secure: bool = True
    directory: Path | None = None
    """With tls.crt and tls.key, kept current by somebody else."""


@asynccontextmanager
async def serving_metrics(
    metrics: Metrics, client: Client, settings: MetricsSettings, clock: Clock, keys: ServerKeys | None = None
) -> AsyncIterator[MetricsPort]:
    """`keys`: of the status server. Raises OSError if the port or the certificate cannot be used."""
    async with Scope("metrics") as scope:
        context: ssl.SSLContext | None = None
        if settings.directory is not None:
            mounted = MountedKeys(settings.directory, clock)
            scope.spawn_forever(mounted.follow(), name="metrics.certificate")
            context = mounted.context
        elif settings.secure:
            own = keys or issue_apart(("localhost", socket.gethostname()), clock, _DAYS)
            context = tls.build_context(own.certificate, own.key)
        access = MetricsAccess(client, clock) if settings.secure else None
        async with MetricsPort(metrics, settings, clock, access, context) as port:
            yield port


class MetricsPort(EdgeServer[IncomingRequest]):
    """Serves while it is entered. Entering raises OSError if the port is not available."""

    make_request = IncomingRequest

    def __init__(
        self,
        metrics: Metrics,
        settings: MetricsSettings,
        clock: Clock,
        access: MetricsAccess | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`access`: None for everybody; `context`: None for plain HTTP."""
        super().__init__(_LIMITS, clock, tls=context, name="metrics")
        self._metrics = metrics
        self._settings = settings
        self._access = access

    def open_socket(self) -> socket.socket:
        where = self._settings
        try:
            return open_listener(where.host, where.port)
        except OSError as error:
            text = f"cannot serve metrics on port {where.port}: {error.strerror}; choose another operator.metrics_port"
            raise OSError(text) from None

    def serve(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        if self._access is None:
            self._finish(request, connection, None)
        else:
            connection.task = self._scope.spawn_guarded(
                self._check(self._access, request, connection), name="metrics.request"
            )

    async def _check(
        self, access: MetricsAccess, request: IncomingRequest, connection: Connection[IncomingRequest]
    ) -> None:
        refusal: StatusError | None = None
        try:
            await access.check(request.headers.get("authorization", ""))
        except StatusError as error:
            refusal = error
        else:
            # So that strangers cannot displace it.
            self.gatekeeper.recognise(connection.visitor, "metrics", is_privileged=True)
        connection.task = None
        self._finish(request, connection, refusal)

    def _finish(
        self, request: IncomingRequest, connection: Connection[IncomingRequest], refusal: StatusError | None
    ) -> None:
        headers: tuple[str, ...] = ()
        if refusal is not None:
            code, text, kind = refusal.code, f"{refusal}\n", PLAIN
            headers = ('WWW-Authenticate: Bearer realm="trainmaster-operator"',) if code == 401 else ()
        elif request.target.partition("?")[0] != METRICS_PATH:
            code, text, kind = 404, f"there is only GET on {METRICS_PATH}\n", PLAIN
        elif request.method != "GET":
            code, text, kind = 405, "only GET is supported here\n", PLAIN
        else:
            code, text, kind = 200, self._metrics.render(), _FORMAT
        answer = encode_text(code, text, keep_alive=request.keep_alive, content_type=kind, headers=headers)
        connection.answer(answer, request.keep_alive)

    def refuse(self, refusal: EdgeRefusal, connection: Connection[IncomingRequest]) -> None:
        answer = encode_text(refusal.code, f"{refusal.message}\n", keep_alive=False)
        connection.answer(answer, keep_alive=False, linger=True)


@asynccontextmanager
async def running_census(
    cache: WatchCache, models: Sequence[type[TrainingJob]], metrics: Metrics, clock: Clock
) -> AsyncIterator[census.Deletions]:
    """Counts the jobs of these kinds in a cache that is filled, and what is deleted through the result."""
    counted = census.Census()
    for model in models:
        for obj in cache.list(model.gvr):
            counted.put(model.gvr, obj)
    census.declare(metrics, counted, clock)
    async with Scope("census") as scope:
        for model in models:
            follow = cache.follow(model.gvr, partial(_notice, cache, counted, model.gvr))
            scope.spawn_forever(follow, name=f"census.{model.gvr.plural}")
        yield census.Deletions(metrics, cache, clock)


def _notice(cache: WatchCache, counted: census.Census, gvr: GVR, obj: Object) -> None:
    place = (str(obj["metadata"].get("namespace", "")), obj["metadata"]["name"])
    if cache.find(gvr, *place) is None:
        counted.drop(gvr, *place)
    else:
        counted.put(gvr, obj)
