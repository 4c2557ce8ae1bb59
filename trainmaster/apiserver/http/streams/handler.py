"""pods/NAME/exec, attach and portforward: authorization, choice of the container, and the protocol upgrade.

Refusals precede the upgrade, as a Status with upstream's messages. GET (WebSocket) requires `create` in addition to
`get`, as in Kubernetes since 1.35, because running programs in Pods is not reading. The first protocol in the server's
list that the client offers is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar
from urllib.parse import urlsplit

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Registry
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.messages import ApiRequest, header_line
from trainmaster.apiserver.http.routes import Route
from trainmaster.apiserver.http.streams import websocket
from trainmaster.apiserver.http.streams.contract import PodStreams, StreamOptions, UpgradedSession, Wire, read_port
from trainmaster.apiserver.http.subresources.logs import choose_container, find_container_status
from trainmaster.jobs.models.pods import Pod

if TYPE_CHECKING:
    from trainmaster.apiserver.http.streams.sessions import StreamSession

SUBRESOURCES = ("exec", "attach", "portforward")
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
FORWARD = "portforward.k8s.io"
TUNNEL = f"SPDY/3.1+{FORWARD}"
_MOST_PORTS = 64

S = TypeVar("S", bound=UpgradedSession)


@dataclass(frozen=True, slots=True)
class UpgradeResponse(Generic[S]):
    """A session instead of an answer: `open` creates the consumer of the client's bytes, `serve` runs until its end."""

    headers: bytes
    open: Callable[[Wire], S]
    serve: Callable[[S], Awaitable[None]]


class StreamHandler:
    def __init__(self, registry: Registry, access: Access, streams: PodStreams | None) -> None:
        self._registry = registry
        self._access = access
        self._streams = streams

    def handle(self, request: ApiRequest, kind: Kind) -> UpgradeResponse[StreamSession]:
        if request.method not in ("GET", "POST"):
            raise status.method_not_allowed()
        self.check_create(request)
        route = request.route
        pod: Object = orjson.loads(self._registry.get(kind, route.namespace, route.name).value)
        model = Pod(pod)
        forwards = route.subresource == "portforward"
        wanted = None if forwards else self._read_wanted(request, model)
        if not model.node:
            raise status.bad_request(f"pod {route.name} does not have a host assigned")
        if self._streams is None:
            raise StatusError(501, "NotImplemented", "this server runs no Pods and has no streams to them")
        if wanted is None:
            _check_pod_runs(model)
            return self._forward(request, pod, self._streams)
        _check_container_runs(model, wanted.container)
        return self._run(request, pod, wanted, self._streams)

    def check_create(self, request: ApiRequest) -> None:
        route = request.route
        if route.verb == "create":
            return
        route = replace(route, verb="create")
        resource = f"{route.plural}/{route.subresource}"
        if not self._access.authorizer.allows(
            request.identity, "create", route.group, resource, route.namespace, route.name
        ):
            raise self._access.denial(request.identity, route)

    def _read_wanted(self, request: ApiRequest, pod: Pod) -> StreamOptions:
        query = request.query
        command = query.list_values("command")
        if request.route.subresource == "exec" and not any(command):
            raise status.bad_request("you must specify at least one command for the container")
        wanted = StreamOptions(
            container=choose_container(pod, query.get("container")),
            stdin=query.flag("stdin"),
            stdout=query.flag("stdout"),
            stderr=query.flag("stderr"),
            tty=query.flag("tty"),
            command=command if request.route.subresource == "exec" else (),
        )
        if not (wanted.stdin or wanted.stdout or wanted.stderr):
            raise status.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        return wanted

    def _run(
        self, request: ApiRequest, pod: Object, wanted: StreamOptions, streams: PodStreams
    ) -> UpgradeResponse[StreamSession]:
        # Imported here because most servers are never asked for a stream.
        from trainmaster.apiserver.http.streams.programs import ProgramServer  # noqa: PLC0415
        from trainmaster.apiserver.http.streams.sessions import NumberedChannels, SpdyStreams  # noqa: PLC0415

        begin = streams.run if request.route.subresource == "exec" else streams.attach
        server = ProgramServer(wanted, lambda: begin(pod, wanted))
        if is_spdy(request):
            headers = _accept_spdy(request, V4)
            return UpgradeResponse(headers, SpdyStreams, server.serve_streams)
        protocol = _choose_protocol(request, (V5, V4))
        numbers = server.list_numbers()
        return UpgradeResponse(
            _accept_websocket(request, protocol),
            lambda wire: NumberedChannels(wire, numbers, can_half_close=protocol == V5),
            server.serve_channels,
        )

    def _forward(self, request: ApiRequest, pod: Object, streams: PodStreams) -> UpgradeResponse[StreamSession]:
        from trainmaster.apiserver.http.streams.forwarding import Forwarder  # noqa: PLC0415 - see above
        from trainmaster.apiserver.http.streams.sessions import NumberedChannels, SpdyStreams  # noqa: PLC0415

        meta = pod["metadata"]
        ports = _read_ports(request.query.list_values("ports"))
        server = Forwarder(lambda port: streams.connect(pod, port), f"{meta['name']}, uid {meta['uid']}", ports)
        if is_spdy(request):
            return UpgradeResponse(_accept_spdy(request, FORWARD), SpdyStreams, server.serve_streams)
        protocol = _choose_protocol(request, (TUNNEL, V4, ""))
        headers = _accept_websocket(request, protocol)
        if protocol == TUNNEL:
            return UpgradeResponse(headers, lambda wire: SpdyStreams(wire, in_websocket=True), server.serve_streams)
        if not ports:
            raise status.bad_request('query parameter "port" is required')
        numbers = range(2 * len(ports))
        return UpgradeResponse(
            headers, lambda wire: NumberedChannels(wire, numbers, can_half_close=False), server.serve_channels
        )


def is_session(route: Route) -> bool:
    return route.plural == PODS.plural and route.subresource in SUBRESOURCES


def refuse_proxy(request: ApiRequest, kind: Kind) -> NoReturn:
    raise status.bad_request(
        f"{kind.plural}/{request.route.subresource} is not supported by this server; use port-forward"
    )


# The Pod


def _check_pod_runs(pod: Pod) -> None:
    if pod.phase != "Running":
        raise status.bad_request(f"unable to forward port because pod is not running. Current status={pod.phase}")


def _check_container_runs(pod: Pod, container: str) -> None:
    if pod.is_over:
        raise status.bad_request(
            f"cannot exec into or attach to a container in a completed pod; current phase is {pod.phase}"
        )
    if "running" not in read_fields(find_container_status(pod, container), "state"):
        text = f'unable to upgrade connection: container not found ("{container}")'
        raise StatusError(500, "InternalError", f"Internal error occurred: {text}")


def _read_ports(values: list[str]) -> tuple[int, ...]:
    """Given as `ports=80&ports=81` or `ports=80,81`."""
    ports: list[int] = []
    for text in ",".join(values).split(",") if values else []:
        port = read_port(text)
        if port is None:
            raise status.bad_request(f'query parameter "ports": "{text}" is not a port: use a number from 1 to 65535')
        ports.append(port)
    if len(ports) > _MOST_PORTS:
        raise status.bad_request(f'query parameter "ports": at most {_MOST_PORTS} at a time')
    return tuple(ports)


# The upgrade


def is_spdy(request: ApiRequest) -> bool:
    return asks_for(request, "spdy/3.1")


def asks_for(request: ApiRequest, protocol: str) -> bool:
    headers = request.headers
    return "upgrade" in headers.get("connection", "").lower() and headers.get("upgrade", "").lower() == protocol


def _accept_spdy(request: ApiRequest, protocol: str) -> bytes:
    offered = _list_words(request, "x-stream-protocol-version")
    if protocol not in offered:
        text = f"client supports {offered}, server accepts [{protocol}]"
        raise StatusError(403, "Forbidden", f"unable to upgrade: unable to negotiate protocol: {text}")
    return b"Upgrade: SPDY/3.1\r\n" + header_line("X-Stream-Protocol-Version", protocol)


def _choose_protocol(request: ApiRequest, known: tuple[str, ...]) -> str:
    if not asks_for(request, "websocket"):
        raise status.bad_request("unable to upgrade: missing upgrade headers in request: use kubectl, or a WebSocket")
    if request.method != "GET":
        raise status.bad_request("unable to upgrade: a WebSocket begins with GET")
    offered = _list_words(request, "sec-websocket-protocol") or [""]
    for protocol in known:
        if protocol in offered:
            return protocol
    spoken = ", ".join(filter(None, known))
    raise status.bad_request(
        f"unable to upgrade: none of the subprotocols {', '.join(offered)} is spoken here: {spoken}"
    )


def _accept_websocket(request: ApiRequest, protocol: str) -> bytes:
    headers = request.headers
    key = headers.get("sec-websocket-key", "")
    if headers.get("sec-websocket-version") != "13" or not websocket.is_valid_key(key):
        raise status.bad_request("unable to upgrade: not a WebSocket handshake of version 13")
    origin = headers.get("origin")
    if origin and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        # Protects against other web pages in a browser that holds a client certificate.
        raise StatusError(403, "Forbidden", "unable to upgrade: the Origin is not this server")
    accept = b"Upgrade: websocket\r\n" + header_line("Sec-WebSocket-Accept", websocket.build_accept(key))
    return accept + (header_line("Sec-WebSocket-Protocol", protocol) if protocol else b"")


def _list_words(request: ApiRequest, name: str) -> list[str]:
    return [word.strip() for value in request.values(name) for word in value.split(",") if word.strip()]
