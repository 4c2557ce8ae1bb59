"""metrics.k8s.io: current resource usage of Pods and the node, for `kubectl top`.

Nothing is measured without a request. The numbers come from the node, injected as `Meter`, because the API server runs
no Pods; this module decides which Pods are meant, and what a client may see of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_status
from trainmaster.api.resources import NODES, PODS
from trainmaster.apiserver.contract import ListPage, Registry
from trainmaster.apiserver.http import forms, options
from trainmaster.apiserver.http.messages import ApiRequest, Response
from trainmaster.apiserver.http.negotiate import Form, choose_form
from trainmaster.kit.clock import Clock, format_time


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Average CPU over the last `seconds`, in nanocores, and memory in bytes."""

    cpu_nanos: int
    memory_bytes: int
    seconds: float


class Meter(Protocol):
    async def measure_pods(self, pods: Sequence[Object]) -> Mapping[str, Mapping[str, ResourceUsage]]:
        """By uid and container; Pods that do not respond are missing."""
        ...

    async def measure_node(self) -> ResourceUsage: ...


class _NoMeter:
    """For servers that run no Pods."""

    async def measure_pods(self, pods: Sequence[Object]) -> Mapping[str, Mapping[str, ResourceUsage]]:
        return {}

    async def measure_node(self) -> ResourceUsage:
        raise status.unavailable("this server runs no Pods and measures nothing")


NO_METER: Meter = _NoMeter()


class UsageHandler:
    def __init__(self, registry: Registry, catalogue: Catalogue, meter: Meter, clock: Clock) -> None:
        self._registry = registry
        self._meter = meter
        self._clock = clock
        self._catalogue = catalogue

    async def handle_pods(self, request: ApiRequest, kind: Kind) -> Response:
        found = await self._find(request, PODS)
        running = [pod for pod in found if read_status(pod).get("phase") == "Running"]
        measured = await self._meter.measure_pods(running)
        items = [self._build(kind, pod, usages) for pod in running if (usages := measured.get(pod["metadata"]["uid"]))]
        return self._answer(request, kind, items)

    async def handle_nodes(self, request: ApiRequest, kind: Kind) -> Response:
        found = await self._find(request, NODES)
        items: list[Object] = []
        if found:
            usage = await self._meter.measure_node()
            items = [{**self._head(kind, node, usage), "usage": _write(usage)} for node in found]
        return self._answer(request, kind, items)

    async def _find(self, request: ApiRequest, gvr: GVR) -> list[Object]:
        """The objects whose usage is requested."""
        route, kind = request.route, self._catalogue.find(gvr)
        assert kind is not None, "Pods and Nodes are always served"
        if route.verb == "get":
            return [orjson.loads(self._registry.get(kind, route.namespace, route.name).value)]
        if route.verb != "list":
            raise status.method_not_allowed()
        page = await self._registry.list(kind, route.namespace, options.read_list_options(request.query))
        return [orjson.loads(value) for value in page.values]

    def _build(self, kind: Kind, pod: Object, usages: Mapping[str, ResourceUsage]) -> Object:
        head = self._head(kind, pod, next(iter(usages.values())))
        containers = [{"name": name, "usage": _write(usage)} for name, usage in usages.items()]
        return {**head, "containers": containers}

    def _head(self, kind: Kind, obj: Object, usage: ResourceUsage) -> Object:
        meta, now = obj["metadata"], format_time(self._clock.now())
        kept = {name: meta[name] for name in ("name", "namespace", "labels") if name in meta}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**kept, "creationTimestamp": now},
            "timestamp": now,
            "window": f"{usage.seconds:.3f}s",
        }

    def _answer(self, request: ApiRequest, kind: Kind, items: list[Object]) -> Response:
        form = choose_form(request.headers.get("accept"))
        if request.route.verb == "get":
            if not items:
                raise status.not_found(kind.gvr, request.route.name)
            if form is Form.JSON:
                return Response(orjson.dumps(items[0]))
            body, content_type = forms.render_object(form, kind, orjson.dumps(items[0]), request.query, self._clock)
            return Response(body, content_type=content_type)
        page = ListPage([orjson.dumps(item) for item in items], 0)
        if form is Form.JSON:
            return Response(forms.join_list(kind, page))
        body, content_type = forms.render_page(form, kind, page, request.query, self._clock)
        return Response(body, content_type=content_type)


def _write(usage: ResourceUsage) -> dict[str, str]:
    return {"cpu": f"{usage.cpu_nanos}n", "memory": f"{-(-usage.memory_bytes // 1024)}Ki"}
