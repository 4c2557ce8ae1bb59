"""Limits per client, on all ports. Each limit is one field; `app` sets it from the settings.

`tools/limits_page.py` generates docs/limits.md from these docstrings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Limits per client, the same on every port."""

    header_bytes: int = 64 * 1024
    """Request line, headers and trailers of one request. More: 431."""
    headers: int = 200
    """Header lines of one request, trailers included. More: 431."""
    url_bytes: int = 16 * 1024
    """The request line's target. Longer: 414."""
    body_bytes: int = 3 * 1024 * 1024
    """A request's body; the same limit as kube-apiserver's. The REST port has its own, `rest.max_body_bytes`. Larger:
    413."""
    stranger_body_bytes: int = 80 * 1024
    """How much of a body is accepted before the sender is authenticated; a progress report has up to 64 KiB. More
    without valid credentials: 401."""
    connections: int = 4096
    """Open connections on all ports together, and at most half of the file descriptors that the process may have. At
    the limit the oldest unauthenticated connection is closed. An eighth is kept free of authenticated callers who are
    not administrators, so that others can still connect and authenticate."""
    connections_per_address: int = 256
    """Unauthenticated connections from one address (from one /64 with IPv6). A new one closes the oldest of them, so
    early connections cannot keep others out."""
    connections_per_user: int = 512
    """Connections of one user who is not an administrator. More: 429."""
    handshake_seconds: float = 10.0
    """From the connection to the end of the TLS handshake."""
    first_byte_seconds: float = 30.0
    """An unauthenticated connection that sends no request, at its beginning or between requests."""
    header_seconds: float = 10.0
    """From the first byte of a request to the end of its headers (slow-loris). Longer: 408."""
    body_seconds: float = 60.0
    """From the end of the headers to the end of the body. Longer: 408."""
    idle_seconds: float = 180.0
    """A kept-alive connection without a request."""
    write_seconds: float = 30.0
    """A client that reads nothing of a response or a stream for this long is disconnected."""
    stream_buffer_bytes: int = 512 * 1024
    """How much may wait in one connection's write buffer before the server stops accepting events and requests for
    it."""
    drain_seconds: float = 5.0
    """How long a stopping server waits for requests in progress."""
    requests_per_second: float = 200.0
    """Average request rate to the API server of one user who is not an administrator; 0 is no limit. A large body or
    answer counts once for every 256 KiB. More: 429. The REST port has its own, `rest.requests_per_second`."""
    request_burst: int = 400
    """How many of those requests may arrive at once."""
    loop_share: float = 0.1
    """The fraction of the API server's time that one user who is not an administrator may use while others send
    requests; 0 is no limit. Requests above it are delayed, and refused only if they would have to wait for more than
    ten seconds."""
    watchers: int = 2000
    """Open watches, followed logs and sessions (exec, attach, port-forward) in total, and as many event streams of
    REST. More: 429."""
    watchers_per_user: int = 400
    """The same for one user; administrators are limited by `watchers` only. More: 429."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (10.0.0.0/8) of reverse proxies whose X-Forwarded-For is trusted. Empty: none."""
