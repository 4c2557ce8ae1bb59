"""What is served: paths to handlers. One call per request, after access control.

Composed by `app` (or a test) from the registry, the catalogue and the identities; `ApiServer` calls `handle`.
"""

from __future__ import annotations

from trainmaster.api import status
from trainmaster.api.kinds import Catalogue
from trainmaster.apiserver.contract import Registry
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.endpoints import Endpoints
from trainmaster.apiserver.http.limits import Limits
from trainmaster.apiserver.http.logs import LogHandler, PodLogs
from trainmaster.apiserver.http.messages import Request
from trainmaster.apiserver.http.progress import Progress
from trainmaster.apiserver.http.resources import Outcome, Resources
from trainmaster.apiserver.http.streams.contract import PodStreams
from trainmaster.apiserver.http.streams.handler import SUBRESOURCES, StreamHandler, refuse_proxy
from trainmaster.apiserver.http.usage import NO_METER, Meter, UsageHandler
from trainmaster.kit.clock import Clock


class Handlers:
    def __init__(
        self,
        registry: Registry,
        catalogue: Catalogue,
        access: Access,
        endpoints: Endpoints,
        *,
        clock: Clock,
        limits: Limits | None = None,
        logs: PodLogs | None = None,
        streams: PodStreams | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.access = access
        self.resources = Resources(registry, catalogue, limits or Limits(), clock)
        self.resources.specials[("", "pods", "log")] = LogHandler(registry, logs).handle
        serve_stream = StreamHandler(registry, access, streams).handle
        for name in SUBRESOURCES:
            self.resources.specials[("", "pods", name)] = serve_stream
        self.resources.specials[("", "pods", "proxy")] = refuse_proxy
        usage = UsageHandler(registry, catalogue, meter or NO_METER, clock)
        self.resources.specials[("metrics.k8s.io", "pods", "")] = usage.handle_pods
        self.resources.specials[("metrics.k8s.io", "nodes", "")] = usage.handle_nodes
        self.progress = Progress(registry, catalogue, access, clock)
        self.endpoints = endpoints

    def handle(self, request: Request) -> Outcome:
        if request.method not in _METHODS:
            raise status.method_not_allowed()
        if self.progress.concerns(request):
            return self.progress.handle(request)
        self.access.admit(request)
        if request.route.is_resource:
            return self.resources.handle(request)
        return self.endpoints.handle(request)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
