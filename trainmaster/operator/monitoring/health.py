"""Probes of the operator over plain HTTP: GET /healthz, /readyz, and nothing else. Every replica answers them.

    /healthz   200 as long as the event loop answers: a kubelet restarts a Pod whose probe fails
    /readyz    503 while a check fails: nobody is sent to this replica then

The port is open before anything is asked of the cluster, so that a slow start is not taken for a hanging one. The
checks say what keeps this replica from answering webhooks and progress reports correctly; whether it leads is none of
them. A kubelet reads only the status. The text is for people, names the checks as Kubernetes does, and says why one
fails.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs

from trainmaster.client.cache import WatchCache
from trainmaster.client.reflector import Reflector
from trainmaster.edge.connection import Connection
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer, open_listener
from trainmaster.kit.clock import Clock, format_time
from trainmaster.operator.monitoring.plain_text import encode_text
from trainmaster.operator.monitoring.troubles import OperatorTrouble

LIMITS = EdgeLimits(header_bytes=16 * 1024, body_bytes=0, connections=100)
LONGEST_TROUBLE = 60.0
"""Seconds for which a watch may fail before the cache counts as stale. An API server that restarts is back sooner;
after a longer outage, nobody should rely on what webhooks decide from the cache."""

STARTING = "the operator is starting"

Check = Callable[[], str]
"""Returns "" or why it fails."""


@dataclass(frozen=True, slots=True)
class HealthSettings:
    host: str
    """The address to listen on; "" is all."""
    port: int


class Readiness:
    """The checks of `/readyz`, which the start of the operator adds one after the other."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {"start": lambda: STARTING}

    def add(self, name: str, check: Check) -> None:
        self._checks[name] = check

    def explain_start(self, list_troubles: Callable[[], Iterable[OperatorTrouble]]) -> None:
        """What keeps it from starting."""
        self._checks["start"] = lambda: "; ".join((STARTING, *(trouble.text for trouble in list_troubles())))

    def finish_start(self) -> None:
        """Everything that others are sent here for answers."""
        self._checks.pop("start", None)

    def examine(self) -> dict[str, str]:
        """By check, in order: "" or why it fails."""
        return {name: check() for name, check in self._checks.items()}


class CacheCheck:
    """Fails while a collection was never listed, and when its watch has failed for too long."""

    def __init__(self, cache: WatchCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock

    def __call__(self) -> str:
        for watch in self._cache.watches:
            trouble = self._examine(watch)
            if trouble:
                return trouble
        return ""

    def _examine(self, watch: Reflector) -> str:
        scope = watch.scope
        what = f"{scope.gvr.plural} of {scope.namespace}" if scope.namespace else scope.gvr.plural
        if not watch.synced.is_set():
            return f"{what} are not listed yet{f': {watch.trouble}' if watch.trouble else ''}"
        if watch.failing_since is None:
            return ""
        seconds = self._clock.boot() - watch.failing_since
        if seconds < LONGEST_TROUBLE:
            return ""
        return f"no news of {what} for {seconds:.0f} s: {watch.trouble}"


class CertificateCheck:
    """Fails when the certificate that a port serves with has expired, or is unknown."""

    def __init__(self, read_expiry: Callable[[], datetime | None], clock: Clock) -> None:
        self._read_expiry = read_expiry
        self._clock = clock

    def __call__(self) -> str:
        expires = self._read_expiry()
        if expires is not None and expires <= self._clock.now():
            return f"it expired at {format_time(expires)}"
        return ""


class HealthPort(EdgeServer[IncomingRequest]):
    """Serves while it is entered. Entering raises OSError if the port is not available."""

    make_request = IncomingRequest

    def __init__(self, readiness: Readiness, settings: HealthSettings, clock: Clock) -> None:
        super().__init__(LIMITS, clock, name="health")
        self._readiness = readiness
        self._settings = settings

    def open_socket(self) -> socket.socket:
        where = self._settings
        try:
            return open_listener(where.host, where.port)
        except OSError as error:
            text = f"cannot answer probes on port {where.port}: {error.strerror}; choose another operator.health_port"
            raise OSError(text) from None

    def serve(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        code, text = self._answer(request)
        connection.answer(encode_text(code, text, keep_alive=request.keep_alive), request.keep_alive)

    def _answer(self, request: IncomingRequest) -> tuple[int, str]:
        path, _, query = request.target.partition("?")
        if path not in ("/healthz", "/readyz"):
            return 404, "there is only GET on /healthz and /readyz\n"
        if request.method != "GET":
            return 405, "only GET is supported here\n"
        found = {} if path == "/healthz" else self._readiness.examine()
        is_well = not any(found.values())
        if is_well and "verbose" not in parse_qs(query, keep_blank_values=True):
            return 200, "ok"
        return 200 if is_well else 503, describe(path.removeprefix("/"), found)

    def refuse(self, refusal: EdgeRefusal, connection: Connection[IncomingRequest]) -> None:
        answer = encode_text(refusal.code, f"{refusal.message}\n", keep_alive=False)
        connection.answer(answer, keep_alive=False, linger=True)


def describe(name: str, found: dict[str, str]) -> str:
    lines = ["[+]ping ok"]
    lines += [f"[-]{check} failed: {trouble}" if trouble else f"[+]{check} ok" for check, trouble in found.items()]
    verdict = "failed" if any(found.values()) else "passed"
    return "\n".join((*lines, f"{name} check {verdict}", ""))
