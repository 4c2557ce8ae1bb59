"""pods/NAME/log: chooses the container and checks that it can have a log; the node provides the bytes.

The node is injected as `PodLogs`, because the API server runs no Pods. The messages are those of upstream's API server
and kubelet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Registry
from trainmaster.apiserver.http.messages import TEXT, ApiRequest, Response
from trainmaster.apiserver.http.options import read_log_options
from trainmaster.apiserver.http.watching import StreamResponse
from trainmaster.client.contract import LogOptions
from trainmaster.jobs.models.pods import Pod


class PodLogs(Protocol):
    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """The log of one container in pieces that end with a line; with `follow` until the container ends.

        Raises StatusError if there is none.
        """
        ...


class LogHandler:
    def __init__(self, registry: Registry, logs: PodLogs | None) -> None:
        self._registry = registry
        self._logs = logs

    def handle(self, request: ApiRequest, kind: Kind) -> Response | StreamResponse:
        route = request.route
        if route.verb != "get":
            raise status.method_not_allowed()
        options = read_log_options(request.query)
        raw: Object = orjson.loads(self._registry.get(kind, route.namespace, route.name).value)
        pod = Pod(raw)
        check_uid(pod, options.uid)
        container = choose_container(pod, options.container)
        if not pod.node:
            return Response(b"", content_type=TEXT)
        check_started(pod, container, previous=options.previous)
        if self._logs is None:
            raise StatusError(501, "NotImplemented", "this server runs no Pods and has no logs")
        return StreamResponse(self._logs.read(raw, container, options), content_type=TEXT, head_first=options.follow)


def check_uid(pod: Pod, wanted: str) -> None:
    """Raises NotFound if the Pod that a client means is gone and another one has its name."""
    if wanted not in ("", pod.uid):
        raise status.not_found(PODS, pod.name)


def choose_container(pod: Pod, name: str) -> str:
    ordinary = [item["name"] for item in pod.containers]
    init = [item["name"] for item in pod.init_containers]
    if name:
        if name not in ordinary and name not in init:
            raise status.bad_request(f"container {name} is not valid for pod {pod.name}")
        return name
    if len(ordinary) == 1:
        return str(ordinary[0])
    text = f"a container name must be specified for pod {pod.name}, choose one of: [{' '.join(ordinary)}]"
    if init:
        text += f" or one of the init containers: [{' '.join(init)}]"
    raise status.bad_request(text)


def check_started(pod: Pod, container: str, *, previous: bool) -> None:
    found = find_container_status(pod, container)
    state = read_fields(found, "state")
    ended_before = bool(read_fields(found, "lastState", "terminated"))
    if previous and not ended_before:
        raise status.bad_request(f'previous terminated container "{container}" in pod "{pod.name}" not found')
    if "running" in state or "terminated" in state or ended_before:
        return
    reason = read_text(state, "waiting", "reason") or "ContainerCreating"
    raise status.bad_request(f'container "{container}" in pod "{pod.name}" is waiting to start: {reason}')


def find_container_status(pod: Pod, container: str) -> Fields | None:
    for found in (*pod.container_statuses, *pod.init_container_statuses):
        if found.get("name") == container:
            return found
    return None
