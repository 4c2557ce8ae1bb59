"""Serves the application on a socket that somebody else has opened: HTTP/1.1 over TLS, in the running event loop.

Used by `app` and by `trainmaster rest`. Signals, logs and the loop belong to the process, so only the server's own
parts of uvicorn are used: it starts on entering, and leaving lets requests finish for a while and then ends them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from trainmaster.kit.scopes import finish

_DRAIN_SECONDS = 5
_KEEP_ALIVE_SECONDS = 300
"""An idle connection; a client that reuses one just when it ends gets no answer, so that should be rare."""
_CONNECTIONS = 2_000
"""More are answered 503: each may hold a body."""


@asynccontextmanager
async def serving_app(app: Any, listener: socket.socket, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Entering returns when connections are taken. The listener is closed at the end."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        # Whoever calls could claim any address and scheme.
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    config.load()
    config.ssl = tls
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield
    finally:
        server.should_exit = True
        app.stop()
        await finish(server.shutdown(sockets=[listener]), limit=_DRAIN_SECONDS + 5, name="rest.drain")
