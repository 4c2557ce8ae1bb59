"""Maps paths to handlers. Called once per request, after access control.

Composed by `app` (or a test) from the registry, the catalogue and the identities; `ApiServer` calls `handle`.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.kindsets.metrics_v1beta1 import NODE_METRICS, POD_METRICS
from trainmaster.api.resources import PODS
from trainmaster.api.training.pace import CountSinceStop
from trainmaster.apiserver.contract import Registry
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.carrying import accept_carrier
from trainmaster.apiserver.http.endpoints import Endpoints
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import ApiRequest
from trainmaster.apiserver.http.resources import Outcome, Resources
from trainmaster.apiserver.http.streams.contract import PodStreams
from trainmaster.apiserver.http.streams.handler import SUBRESOURCES, StreamHandler, is_session, refuse_proxy
from trainmaster.apiserver.http.subresources.logs import LogHandler, PodLogs
from trainmaster.apiserver.http.subresources.progress import ProgressEndpoint
from trainmaster.apiserver.http.usage import NO_METER, Meter, UsageHandler
from trainmaster.edge import multiplexing
from trainmaster.kit.clock import Clock

AdmitCaller = Callable[[ApiRequest], None]


def _admit_all(request: ApiRequest) -> None:
    return None


class Handlers:
    def __init__(
        self,
        registry: Registry,
        catalogue: Catalogue,
        access: Access,
        endpoints: Endpoints,
        *,
        clock: Clock,
        limits: ApiLimits | None = None,
        logs: PodLogs | None = None,
        streams: PodStreams | None = None,
        meter: Meter | None = None,
        count_since_stop: CountSinceStop | None = None,
    ) -> None:
        self.access = access
        self.resources = Resources(registry, catalogue, limits or ApiLimits(), clock)
        specials = self.resources.specials
        specials[PODS, "log"] = LogHandler(registry, logs).handle
        self._sessions = StreamHandler(registry, access, streams)
        for name in SUBRESOURCES:
            specials[PODS, name] = self._sessions.handle
        specials[PODS, "proxy"] = refuse_proxy
        usage = UsageHandler(registry, catalogue, meter or NO_METER, clock)
        specials[POD_METRICS.gvr, ""] = usage.handle_pods
        specials[NODE_METRICS.gvr, ""] = usage.handle_nodes
        self.progress = ProgressEndpoint(registry, catalogue, access, clock, count_since_stop)
        self.endpoints = endpoints

    def handle(self, request: ApiRequest, admit_caller: AdmitCaller = _admit_all) -> Outcome:
        """`admit_caller` is called once the caller is authenticated, and may refuse."""
        if request.method not in _METHODS:
            raise status.method_not_allowed()
        if self.progress.concerns(request):
            return self.progress.handle(request, admit_caller)
        try:
            self.access.admit(request)
        finally:
            admit_caller(request)
        if request.route.is_resource:
            return self.resources.handle(request)
        if request.route.path == multiplexing.PATH:
            return accept_carrier(request)
        return self.endpoints.handle(request)

    def check(self, request: ApiRequest) -> None:
        """Whether an open stream would be allowed to start now. Raises StatusError 401 or 403 if not."""
        self.access.admit(request)
        if is_session(request.route):
            self._sessions.check_create(request)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
