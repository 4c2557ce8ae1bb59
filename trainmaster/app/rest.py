"""The REST API of a home: its socket is open when the server is ready, its code is loaded at the first connection.

So whoever does not use it pays nothing (the web framework takes a quarter of a second and 35 MB), and whoever does
finds it at an address that `trainmaster status` tells from the first moment. This module is loaded by every start, so
it imports nothing of `rest`; `rest_backend` puts that together.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trainmaster.app.home import HomeError
from trainmaster.app.settings import Rest
from trainmaster.kit.scopes import Scope

if TYPE_CHECKING:
    from trainmaster.rest.contract import Backend

    BuildBackend = Callable[[], Awaitable[Backend]]

log = logging.getLogger(__name__)

_BACKLOG = 1024
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean all, and where a client on this machine finds what listens there."""


def open_listener(settings: Rest, last: int | None) -> tuple[socket.socket, list[str]]:
    """The socket, and what the owner should know about it. HomeError when there is none to be had."""
    wanted = settings.port or last or 0
    try:
        return _listen(settings.address, wanted), []
    except OSError as error:
        if settings.port or not wanted:
            raise _build_refusal(settings, error) from None
    note = f"port {wanted}, where REST was served last time, is taken by another program; it has a new one"
    try:
        return _listen(settings.address, 0), [note]
    except OSError as error:
        raise _build_refusal(settings, error) from None


def _build_refusal(settings: Rest, error: OSError) -> HomeError:
    where = f"{settings.address} port {settings.port}"
    return HomeError(f"cannot serve REST on {where}: {error.strerror}: choose others with rest.address and rest.port")


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def build_url(listener: socket.socket) -> str:
    """The address for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = WILDCARDS.get(host, host)
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def build_tls(certificate: str, key: str) -> ssl.SSLContext:
    """For browsers and programs alike: nobody is asked for a certificate, a token says who calls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


@asynccontextmanager
async def serving_on_demand(
    listener: socket.socket, tls: ssl.SSLContext, build_backend: BuildBackend
) -> AsyncIterator[None]:
    """Connections wait in the listener's queue until the code is there; leaving ends it all."""
    try:
        async with Scope("rest") as scope:
            scope.spawn_guarded(_serve(listener, tls, build_backend), name="rest.serve")
            yield
    finally:
        listener.close()


async def _serve(listener: socket.socket, tls: ssl.SSLContext, build_backend: BuildBackend) -> None:
    await _wait_readable(listener)
    try:
        application, serving = await asyncio.to_thread(_load)
    except ImportError:
        # Nobody must wait for an answer that never comes.
        listener.close()
        raise
    app = application.build_app(await build_backend())
    # What was loaded stays; full collections need not walk it.
    gc.freeze()
    async with serving.serving_app(app, listener, tls):
        log.info("rest is loaded", extra={"action": "rest.loaded"})
        await asyncio.get_running_loop().create_future()


def _load() -> tuple[Any, Any]:
    """By name, in a thread: the imports take a quarter of a second, and jobs go on meanwhile."""
    return importlib.import_module("trainmaster.rest.application"), importlib.import_module("trainmaster.rest.serving")


async def _wait_readable(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    knocked = asyncio.Event()
    loop.add_reader(listener.fileno(), knocked.set)
    try:
        await knocked.wait()
    finally:
        loop.remove_reader(listener.fileno())
