"""Outgoing connections of a Pod: an HTTP proxy and port forwards, on listeners inside the Pod's network.

A listening socket stays in the network namespace in which it was created, and any process that holds it can accept
connections. The relay is a child of the shim in the machine's network: it accepts inside the Pod and connects from
outside. It is started at the first connection, uses a thread per connection, and dies with the shim, so outgoing
connections work while no control plane runs.

The proxy does not connect to the machine's loopback or link-local addresses, because services there trust local users.
For tenants it connects to none of the machine's addresses, and to private ones only as the owner allows (`egress`). If
the machine itself must use a proxy, names are resolved there; then only addresses, and names that mean something on
this machine, are checked.

A proxy request for the address of a forward is treated as that forward: some Kubernetes clients send everything to the
proxy from the environment, even hosts listed in NO_PROXY.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from trainmaster.shim.protocol import Relay
from trainmaster.shim.sandbox import egress
from trainmaster.shim.sandbox.linux import set_parent_death_signal, set_process_name

_HEAD_LIMIT = 64 * 1024
_CONNECT_SECONDS = 30.0
_CHUNK = 256 * 1024
_RESOLVE_SECONDS = 2.0
_HOST = re.compile(r"[a-z0-9._:%-]+")
_TARGET = re.compile(r"[!-\[\]-~]+")
"""Printable ASCII without the backslash, which some implementations read as a slash."""
_METHOD = re.compile(r"[A-Z]+")


class ProxyRefused(Exception):
    """The request is refused; the text goes to the client."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    method: str
    host: str
    port: int
    head: bytes
    """What is sent to the server: empty for CONNECT, otherwise the request in origin form."""
    upstream_head: bytes = b""
    """The same for an upstream proxy, without the final empty line."""


def start(listeners: Sequence[int], relays: Sequence[Relay]) -> int:
    """Forks the relay and returns its pid."""
    child = os.fork()
    if child:
        return child
    try:
        set_parent_death_signal(signal.SIGKILL)
        set_process_name("tm-relay")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _close_others({0, 1, 2, *listeners})
        run([socket.socket(fileno=handle) for handle in listeners], relays)
    finally:
        os._exit(1)


def _close_others(kept: set[int]) -> None:
    """Closes the shim's connections and the containers' pipes, which must end when the shim closes them."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor used for listing
                os.close(int(name))


def run(listeners: Sequence[socket.socket], relays: Sequence[Relay]) -> None:
    threads = [
        threading.Thread(target=_accept, args=(listener, relay, relays), daemon=True)
        for listener, relay in zip(listeners, relays, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _accept(listener: socket.socket, relay: Relay, relays: Sequence[Relay]) -> None:
    listener.setblocking(True)
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(client, relay, relays), daemon=True).start()


def _serve(client: socket.socket, relay: Relay, relays: Sequence[Relay]) -> None:
    with client:
        try:
            server = _forward(relay) if is_forward(relay) else _connect_as_proxy(client, relay, relays)
        except ProxyRefused as error:
            _refuse(client, error.status, str(error))
            return
        except (OSError, ValueError) as error:
            if not is_forward(relay):  # a forward's protocol is unknown: its client sees the connection end
                _refuse(client, "502 Bad Gateway", str(error))
            return
        with server:
            _pump_both(client, server)


def is_forward(relay: Relay) -> bool:
    return bool(relay.host or relay.server_file)


def find_forward(relays: Sequence[Relay], host: str, port: int) -> Relay | None:
    places = {(relay.address, relay.port): relay for relay in relays if is_forward(relay)}
    return places.get((host, port))


def _forward(relay: Relay) -> socket.socket:
    host, port = relay.host, relay.host_port
    if relay.server_file:
        host, port = read_server(relay.server_file)
    link = socket.create_connection((host, port), _CONNECT_SECONDS)
    link.settimeout(None)
    return link


def read_server(path: str) -> tuple[str, int]:
    """Read anew for each connection: the server may have restarted on another port."""
    with open(path, "rb") as stream:
        where = urlsplit(str(json.load(stream).get("server")))
    if not where.hostname:
        raise OSError(errno.ECONNREFUSED, "no server runs")
    return where.hostname, where.port or 443


def _connect_as_proxy(client: socket.socket, relay: Relay, relays: Sequence[Relay]) -> socket.socket:
    """Reads the client's request and connects to its destination."""
    head, rest = read_head(client)
    request = parse_request(head)
    near = find_forward(relays, request.host, request.port)
    if relay.upstream and near is None:
        check_upstream(request, relay)
        # For restricted Pods the request is rewritten, so that both proxies understand it in the same way.
        server = _connect_upstream(relay.upstream, request.upstream_head if relay.reach else head)
        server.sendall(rest)
        return server
    server = _connect(request.host, request.port, relay) if near is None else _forward(near)
    if request.method == "CONNECT":
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    server.sendall(request.head + rest)
    return server


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    client.settimeout(_CONNECT_SECONDS)
    while b"\r\n\r\n" not in data:
        if len(data) > _HEAD_LIMIT:
            raise ProxyRefused("431 Request Header Fields Too Large", "the request's head is too large")
        chunk = client.recv(_HEAD_LIMIT)
        if not chunk:
            raise ProxyRefused("400 Bad Request", "the request ended within its head")
        data += chunk
    client.settimeout(None)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def parse_request(head: bytes) -> ProxyRequest:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise ProxyRefused("400 Bad Request", "the first line is not a request to a proxy")
    method, target, version = parts
    if not _TARGET.fullmatch(target):
        raise ProxyRefused("400 Bad Request", "the address has characters that must be escaped")
    where = urlsplit(f"//{target}" if method == "CONNECT" else target)
    try:
        host, port = where.hostname, where.port
    except ValueError:
        raise ProxyRefused("400 Bad Request", f"{target} has no valid port") from None
    if not host or (method != "CONNECT" and where.scheme != "http"):
        raise ProxyRefused("400 Bad Request", "this is a proxy: ask with CONNECT host:port or http://host/path")
    if not _HOST.fullmatch(host) or not _METHOD.fullmatch(method) or version not in ("HTTP/1.1", "HTTP/1.0"):
        raise ProxyRefused("400 Bad Request", "the first line is not a request to a proxy")
    port = port or (443 if method == "CONNECT" else 80)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if method == "CONNECT":
        return ProxyRequest(method, host, port, b"", f"CONNECT {place} HTTP/1.1\r\nHost: {place}".encode())
    path = (where.path or "/") + (f"?{where.query}" if where.query else "")
    kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection:", "keep-alive:"))]
    # One request per connection: the next one might be for another host.
    sent = "\r\n".join((f"{method} {path} {version}", *kept, "Connection: close", "", ""))
    others = [line for line in kept if not line.lower().startswith("host:")]
    words = (f"{method} http://{place}{path} {version}", f"Host: {place}", *others, "Connection: close")
    return ProxyRequest(method, host, port, sent.encode("latin-1"), "\r\n".join(words).encode("latin-1"))


def check_upstream(request: ProxyRequest, relay: Relay) -> None:
    """Checks the host before the upstream proxy resolves it: only what the name means on this machine is known."""
    if not relay.reach:
        found = _resolve(request.host, request.port, socket.AI_NUMERICHOST)
    else:
        found = _resolve_soon(request.host, request.port)
    for address in found:
        check_address(address, relay, request.host, request.port)


def _resolve_soon(host: str, port: int) -> list[str]:
    """Resolves with a short timeout: a machine behind a proxy may have no name service."""
    found: list[str] = []
    work = threading.Thread(target=lambda: found.extend(_resolve(host, port)), daemon=True)
    work.start()
    work.join(_RESOLVE_SECONDS)
    return list(found)


def _resolve(host: str, port: int, flags: int = 0) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)]
    except (socket.gaierror, UnicodeError):
        return []


def _connect(host: str, port: int, relay: Relay) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ProxyRefused("502 Bad Gateway", f"{host}: {error}") from None
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        check_address(str(address[0]), relay, host, port)
        server = socket.socket(family, kind, protocol)
        server.settimeout(_CONNECT_SECONDS)
        try:
            server.connect(address)
        except OSError as error:
            server.close()
            failure = error
            continue
        server.settimeout(None)
        return server
    raise ProxyRefused("502 Bad Gateway", f"{host}:{port}: {failure}")


def check_address(text: str, relay: Relay, host: str = "", port: int = 0) -> None:
    address = egress.parse_address(text)
    if relay.reach and egress.is_opened(relay.allow, host, port, address):
        return
    refusal = egress.find_refusal(address, relay.reach)
    if refusal:
        raise ProxyRefused("403 Forbidden", f"{text} {refusal}")


def _connect_upstream(upstream: str, head: bytes) -> socket.socket:
    where = urlsplit(upstream)
    server = socket.create_connection((where.hostname or "", where.port or 3128), _CONNECT_SECONDS)
    server.settimeout(None)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"proxy-authorization:")]
    if where.username is not None:
        secret = f"{unquote(where.username)}:{unquote(where.password or '')}".encode()
        lines.append(b"Proxy-Authorization: Basic " + base64.b64encode(secret))
    server.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
    return server


def _refuse(client: socket.socket, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError):
        client.sendall(head.encode() + body)


def _pump_both(client: socket.socket, server: socket.socket) -> None:
    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
    back.start()
    _pump(client, server)
    back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copies until the end, and passes on the half-close."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
