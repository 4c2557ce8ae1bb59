"""Serves the REST API of a home. Its socket is open from the start; its code is imported at the first request.

So it costs nothing until it is used (the web framework takes a quarter of a second and 35 MB), and `trainmaster status`
shows its address from the start. Every start imports this module, so it imports nothing of `rest`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING

import orjson

from trainmaster.app.home.folder import HomeError
from trainmaster.app.settings import Dashboard, Rest
from trainmaster.edge.asgi import AsgiApplication, AsgiServer, HeaderLines
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import BACKLOG
from trainmaster.kit.clock import Clock

if TYPE_CHECKING:
    from trainmaster.rest.contract import Backend

    BuildBackend = Callable[[], Awaitable[Backend]]

log = logging.getLogger(__name__)

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard addresses, and the corresponding loopback addresses for clients on this machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and how that is named for the owner."""

    address: str
    port: int
    """0: that of the last start, or a free one."""
    name: str
    advice: str


def build_rest_place(settings: Rest) -> Place:
    return Place(settings.address, settings.port, "REST", "choose others with rest.address and rest.port")


def build_plain_place(settings: Dashboard) -> Place:
    """Loopback, whatever else is set: what is sent there is not encrypted."""
    advice = "choose another with dashboard.port, or turn it off with dashboard.plain"
    return Place("127.0.0.1", settings.port, "the dashboard", advice)


def open_listener(place: Place, last: int | None) -> tuple[socket.socket, list[str]]:
    """The socket, and notes about it for the owner. HomeError if none can be opened."""
    wanted = place.port or last or 0
    try:
        return _listen(place.address, wanted), []
    except OSError as error:
        if place.port or not wanted:
            raise _build_refusal(place, error) from None
    note = f"port {wanted}, where {place.name} was served last time, is taken by another program; it has a new one"
    try:
        return _listen(place.address, 0), [note]
    except OSError as error:
        raise _build_refusal(place, error) from None


def _build_refusal(place: Place, error: OSError) -> HomeError:
    where = f"{place.address} port {place.port}"
    return HomeError(f"cannot serve {place.name} on {where}: {error.strerror}: {place.advice}")


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener


def build_url(listener: socket.socket, scheme: str = "https") -> str:
    """The address for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = WILDCARDS.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def build_tls(certificate: str, key: str) -> ssl.SSLContext:
    """The TLS context. Clients authenticate with tokens, not with certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class Door:
    """A port of the REST API. Without `tls` it is the plain door of a home."""

    listener: socket.socket
    tls: ssl.SSLContext | None


@asynccontextmanager
async def serving_on_demand(
    doors: Sequence[Door],
    build_backend: BuildBackend,
    limits: EdgeLimits,
    clock: Clock,
    gatekeeper: Gatekeeper | None = None,
) -> AsyncIterator[None]:
    """Accepts connections at once and imports the code at the first request. All doors lead to one application.
    Leaving the block stops it."""
    loading = asyncio.Lock()
    loaded: list[AsgiApplication] = []

    async def load() -> AsgiApplication:
        async with loading:
            if not loaded:
                module = await asyncio.to_thread(_import_application)
                loaded.append(module.build_app(await build_backend()))
                # Exempt the imported code from garbage collection.
                gc.freeze()
                log.info("rest is loaded", extra={"action": "rest.loaded"})
        return loaded[0]

    async with AsyncExitStack() as stack:
        for door in doors:
            stack.callback(door.listener.close)
        for door in doors:
            server = AsgiServer(load, door.listener, encode_refusal, limits, clock, gatekeeper=gatekeeper, tls=door.tls)
            await stack.enter_async_context(server)
        yield


def _import_application() -> ModuleType:
    """Called in a thread, because the imports take a quarter of a second."""
    from trainmaster.rest import application

    return application


_KINDS = {
    400: "bad-request",
    408: "too-slow",
    413: "too-large",
    414: "too-large",
    429: "too-many-requests",
    431: "too-large",
    500: "unexpected",
    503: "unavailable",
}


def encode_refusal(refusal: EdgeRefusal) -> tuple[HeaderLines, bytes]:
    """The refusal as a problem document (docs/rest.md), without code of `rest`, which may not be imported yet."""
    problem = {
        "type": f"urn:trainmaster:problem:{_KINDS.get(refusal.code, 'refused')}",
        "title": HTTPStatus(refusal.code).phrase,
        "status": refusal.code,
        "detail": refusal.message,
    }
    headers = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    headers.append((b"x-content-type-options", b"nosniff"))
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refusal.retry_after))
    return headers, orjson.dumps(problem)
