"""Limits per authenticated caller: connections, requests, bytes, and time of the event loop."""

from __future__ import annotations

from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.audit import WRITES
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import ANONYMOUS, ApiRequest, build_status_error
from trainmaster.auth.contract import MASTERS
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock
from trainmaster.kit.shares import LONGEST_SECONDS, LoopShares

BYTES_PER_REQUEST = 256 * 1024
"""This many bytes of a body or an answer count as one request."""
_WRITE_FACTOR = 3
"""The consequences of a write (commit, watchers, controllers) take about twice as long as the write itself."""
_WRITTEN_PER_SECOND = 8e6
"""Bytes written are charged as this many per second of the server's time. A disk is faster (about 50e6), but the writes
of all other callers wait for the same commit."""


class TooFastError(StatusError):
    """The caller exceeded a limit, which the text names."""

    def __init__(self, text: str, wait: float) -> None:
        super().__init__(429, "TooManyRequests", text, retry_after=max(1, int(wait + 0.999)))


class NotYetError(Exception):
    """The request is delayed for this many seconds in favour of other callers."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class CallerLimits:
    """Administrators are never refused and never delayed."""

    def __init__(self, limits: ApiLimits, clock: Clock, gatekeeper: Gatekeeper) -> None:
        self._limits = limits
        self._gatekeeper = gatekeeper
        rate = limits.requests_per_second
        self._rates = TokenBuckets(clock, per_second=rate, burst=limits.request_burst) if rate else None
        self._shares = LoopShares(clock, limits.loop_share) if limits.loop_share else None

    def admit_caller(self, request: ApiRequest) -> None:
        """Called once the caller is authenticated. Raises StatusError 429 or NotYetError."""
        identity, visitor = request.identity, request.visitor
        if identity is ANONYMOUS:
            return
        is_privileged = _is_privileged(request)
        user = request.impersonator or identity.user
        if visitor is not None and visitor.user != user:
            try:
                self._gatekeeper.recognise(visitor, user, is_privileged=is_privileged)
            except EdgeRefusal as refusal:
                request.keep_alive = False
                raise build_status_error(refusal) from None
        if is_privileged:
            if self._shares is not None:
                self._shares.note_arrival(user, request.started)
            return
        self._take_turn(request, user)
        if self._rates is not None and not self._rates.take(user):
            raise TooFastError(_describe_rate(self._limits), self._rates.get_wait(user))
        if len(request.body) > BYTES_PER_REQUEST:
            self.charge(request, len(request.body))

    def _take_turn(self, request: ApiRequest, user: str) -> None:
        if self._shares is None or request.has_waited:
            return
        wait = self._shares.plan(user)
        if wait > LONGEST_SECONDS:
            raise TooFastError(_describe_share(self._limits), wait)
        if wait:
            raise NotYetError(wait)

    def note(self, request: ApiRequest, seconds: float) -> None:
        """Records how long the request took."""
        if self._shares is not None and not _is_privileged(request):
            taken = seconds
            if request.route.verb in WRITES:
                taken = seconds * _WRITE_FACTOR + len(request.body) / _WRITTEN_PER_SECOND
            self._shares.note(request.identity.user, taken, waited=request.has_waited)

    def charge(self, request: ApiRequest, size: int) -> None:
        """Large bodies and answers count as several requests, because their cost is proportional to their size."""
        if self._rates is not None and not _is_privileged(request):
            self._rates.charge(request.identity.user, size / BYTES_PER_REQUEST)


def _describe_rate(limits: EdgeLimits) -> str:
    return (
        f"more than {limits.requests_per_second:g} requests a second, and no more than {limits.request_burst} "
        "at once (limits.requests_per_second)"
    )


def _describe_share(limits: ApiLimits) -> str:
    return (
        f"your requests take more than {limits.loop_share * 100:g} percent of the server's time while others "
        "wait for it (limits.loop_share)"
    )


def _is_privileged(request: ApiRequest) -> bool:
    return MASTERS in request.identity.groups or request.impersonator != ""
