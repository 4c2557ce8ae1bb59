"""The way out of a Pod's network: an HTTP proxy and forwards, on listeners that live inside it.

A listening socket keeps the network namespace in which it was made, and whoever holds it may accept from anywhere: the
relay is a child of the shim that stays in the machine's network and connects from there. It starts with the first
connection, serves with a thread each (it is a process of its own), and dies with the shim. So outgoing connections
work while no control plane runs.

The proxy does not lead to the machine's own loopback or link-local addresses: what listens there trusts local users.
For tenants it leads to none of the machine's addresses, and to private ones only as the owner says (`egress`). Where
all goes through the machine's own proxy, names are resolved there; then addresses are judged, and names that mean
something on this machine.
Asked for the place of a forward, it is that forward: there are Kubernetes clients that send everything to a proxy that
the environment names, also what NO_PROXY excepts.
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
"""Printable ASCII without the backslash, which some read as a slash."""
_METHOD = re.compile(r"[A-Z]+")


class ProxyRefused(Exception):
    """Not let through; the text goes to the client."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    method: str
    host: str
    port: int
    head: bytes
    """What is sent on: empty for CONNECT, else the request in origin form."""
    abroad: bytes = b""
    """The same for another proxy, without the empty line at its end."""


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
            server = _forward(relay) if is_forward(relay) else _propose(client, relay, relays)
        except ProxyRefused as error:
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


def _propose(client: socket.socket, relay: Relay, relays: Sequence[Relay]) -> socket.socket:
    """Reads the client's request and connects where it wants to go."""
    head, rest = read_head(client)
    request = parse_request(head)
    near = find_forward(relays, request.host, request.port)
    if relay.upstream and near is None:
        check_abroad(request, relay)
        # What is not everybody's to ask is put into words of ours, so that both proxies read the same in them.
        server = _connect_upstream(relay.upstream, request.abroad if relay.reach else head)
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
    # One request for each connection: the next one might go to another host.
    sent = "\r\n".join((f"{method} {path} {version}", *kept, "Connection: close", "", ""))
    others = [line for line in kept if not line.lower().startswith("host:")]
    words = (f"{method} http://{place}{path} {version}", f"Host: {place}", *others, "Connection: close")
    return ProxyRequest(method, host, port, sent.encode("latin-1"), "\r\n".join(words).encode("latin-1"))


def check_abroad(request: ProxyRequest, relay: Relay) -> None:
    """Before another proxy is asked, which resolves names itself: what the name means here is all that is known."""
    if not relay.reach:
        found = _resolve(request.host, request.port, socket.AI_NUMERICHOST)
    else:
        found = _resolve_soon(request.host, request.port)
    for address in found:
        check_address(address, relay, request.host, request.port)


def _resolve_soon(host: str, port: int) -> list[str]:
    """A machine that can only use a proxy may have no name service, and waits long for it in vain."""
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
    """Until the end; passes the half-close on."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
