"""The way out of a Pod's network: an HTTP proxy and forwards, on listeners that live inside it.

A listening socket keeps the network namespace in which it was made, and whoever holds it may accept from anywhere: the
relay is a child of the shim that stays in the machine's network and connects from there. It starts with the first
connection, serves with a thread each (it is a process of its own), and dies with the shim. So outgoing connections
work while no control plane runs.

The proxy does not lead to the machine's own loopback or link-local addresses: what listens there trusts local users.
Asked for the place of a forward, it is that forward: there are Kubernetes clients that send everything to a proxy that
the environment names, also what NO_PROXY excepts.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import ipaddress
import json
import os
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from trainmaster.shim.linux import set_parent_death_signal, set_process_name
from trainmaster.shim.protocol import Relay

_HEAD_LIMIT = 64 * 1024
_CONNECT_SECONDS = 30.0
_CHUNK = 256 * 1024


class Refused(Exception):
    """Not let through; the text goes to the client."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    host: str
    port: int
    head: bytes
    """What is sent on: empty for CONNECT, else the request in origin form."""


def start(listeners: Sequence[int], relays: Sequence[Relay]) -> int:
    """Forks the relay; its pid."""
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
    """What the shim holds: its connections and the containers' pipes must end when the shim ends them."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that the listing itself used
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
            server = _forward(relay) if is_forward(relay) else _propose(client, relay.upstream, relays)
        except Refused as error:
            _refuse(client, error.status, str(error))
            return
        except (OSError, ValueError) as error:
            if not is_forward(relay):  # a forward's protocol is not ours: its client sees the connection end
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
    """At each connection anew: the server may have come back at another port."""
    with open(path, "rb") as stream:
        where = urlsplit(str(json.load(stream).get("server")))
    if not where.hostname:
        raise OSError(errno.ECONNREFUSED, "no server runs")
    return where.hostname, where.port or 443


def _propose(client: socket.socket, upstream: str, relays: Sequence[Relay]) -> socket.socket:
    """Reads the client's request and connects where it wants to go."""
    head, rest = read_head(client)
    request = parse_request(head)
    near = find_forward(relays, request.host, request.port)
    if upstream and near is None:
        server = _connect_upstream(upstream, head)
        server.sendall(rest)
        return server
    server = _connect(request.host, request.port) if near is None else _forward(near)
    if request.method == "CONNECT":
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    server.sendall(request.head + rest)
    return server


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    client.settimeout(_CONNECT_SECONDS)
    while b"\r\n\r\n" not in data:
        if len(data) > _HEAD_LIMIT:
            raise Refused("431 Request Header Fields Too Large", "the request's head is too large")
        chunk = client.recv(_HEAD_LIMIT)
        if not chunk:
            raise Refused("400 Bad Request", "the request ended within its head")
        data += chunk
    client.settimeout(None)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def parse_request(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise Refused("400 Bad Request", "the first line is not a request to a proxy")
    method, target, version = parts
    where = urlsplit(f"//{target}" if method == "CONNECT" else target)
    try:
        host, port = where.hostname, where.port
    except ValueError:
        raise Refused("400 Bad Request", f"{target} has no valid port") from None
    if not host or (method != "CONNECT" and where.scheme != "http"):
        raise Refused("400 Bad Request", "this is a proxy: ask with CONNECT host:port or http://host/path")
    if method == "CONNECT":
        return Request(method, host, port or 443, b"")
    path = (where.path or "/") + (f"?{where.query}" if where.query else "")
    kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection:", "keep-alive:"))]
    # One request for each connection: the next one might go to another host.
    sent = "\r\n".join((f"{method} {path} {version}", *kept, "Connection: close", "", ""))
    return Request(method, host, port or 80, sent.encode("latin-1"))


def _connect(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise Refused("502 Bad Gateway", f"{host}: {error.strerror}") from None
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        check_address(str(address[0]))
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
    raise Refused("502 Bad Gateway", f"{host}:{port}: {failure}")


def check_address(text: str) -> None:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    for one in (address, mapped):
        if one is not None and (one.is_loopback or one.is_link_local or one.is_unspecified or one.is_multicast):
            raise Refused("403 Forbidden", f"{text} belongs to the machine itself: Pods are not let through to it")


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
    """Until the end; passes the half-close on."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
