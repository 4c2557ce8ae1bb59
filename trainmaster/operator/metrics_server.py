"""The operator's metrics for Prometheus: GET /metrics over plain HTTP, and nothing else.

As with upstream's managers there is no authentication: whoever reaches the port learns how many jobs each namespace
has. Every replica serves; only the leader counts jobs.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from trainmaster.api.meta import GVR, Object
from trainmaster.client.cache import WatchCache
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

_LIMITS = EdgeLimits(header_bytes=16 * 1024, body_bytes=0, connections=100)


class MetricsPort(EdgeServer[IncomingRequest]):
    """Serves while it is entered. Entering raises OSError if the port is not available."""

    make_request = IncomingRequest

    def __init__(self, metrics: Metrics, clock: Clock, port: int, host: str = "") -> None:
        super().__init__(_LIMITS, clock, name="metrics")
        self._metrics = metrics
        self._where = (host, port)

    def open_socket(self) -> socket.socket:
        return open_listener(*self._where)

    def serve(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        is_known = request.method == "GET" and request.target.partition("?")[0] == "/metrics"
        text = self._metrics.render() if is_known else "GET /metrics is all there is\n"
        answer = _encode(200 if is_known else 404, text, keep_alive=request.keep_alive)
        connection.answer(answer, request.keep_alive)

    def refuse(self, refusal: EdgeRefusal, connection: Connection[IncomingRequest]) -> None:
        answer = _encode(refusal.code, f"{refusal.message}\n", keep_alive=False)
        connection.answer(answer, keep_alive=False, linger=True)


def _encode(code: int, text: str, *, keep_alive: bool) -> bytes:
    body = text.encode()
    lines = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8",
        f"Content-Length: {len(body)}",
        *([] if keep_alive else ["Connection: close"]),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


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
