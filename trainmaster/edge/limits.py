"""What one caller may cost on any port. Every bound is one field here; `app` fills it from the settings.

docs/limits.md is made from these texts (`tools/limits_page.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What one caller may cost, on every port alike."""

    header_bytes: int = 64 * 1024
    """Request line, headers and trailers of one request. More: 431."""
    headers: int = 200
    """Header lines of one request, trailers included. More: 431."""
    url_bytes: int = 16 * 1024
    """The request line's target. Longer: 414."""
    body_bytes: int = 3 * 1024 * 1024
    """A request's body; kube-apiserver's own limit, so that what fits there fits here. The REST port has its own,
    `rest.max_body_bytes`. Larger: 413."""
    stranger_body_bytes: int = 80 * 1024
    """So much of a body is taken before it is known who sends it; a progress report has up to 64 KiB. More without
    valid credentials: 401."""
    connections: int = 4096
    """Open connections on all ports together, and at most half of the descriptors that the process may have. At the
    limit the oldest connection without credentials is closed. An eighth is kept from authenticated callers who are no
    administrators, so that others can still come and say who they are."""
    connections_per_address: int = 256
    """Connections of one address (of one /64 with IPv6) that have not shown valid credentials yet. A new one closes
    the oldest of them, so nobody is kept out by whoever came first."""
    connections_per_user: int = 512
    """Connections of one user who is no administrator. More: 429."""
    handshake_seconds: float = 10.0
    """From the connection to the end of the TLS handshake."""
    first_byte_seconds: float = 30.0
    """A connection without valid credentials that sends no request, at its beginning or between requests."""
    header_seconds: float = 10.0
    """From the first byte of a request to the end of its headers (slow-loris). Longer: 408."""
    body_seconds: float = 60.0
    """From the end of the headers to the end of the body. Longer: 408."""
    idle_seconds: float = 180.0
    """A kept-alive connection without a request."""
    write_seconds: float = 30.0
    """A reader that takes nothing of a response or a stream for that long is dropped."""
    stream_buffer_bytes: int = 512 * 1024
    """What may wait in one connection's write buffer before the server stops taking events and requests for it."""
    drain_seconds: float = 5.0
    """How long a stopping server waits for requests in progress."""
    requests_per_second: float = 200.0
    """Requests of one user who is no administrator to the API server, on average; 0 is no limit. A large body or answer
    counts once for every 256 KiB. More: 429. The REST port has its own, `rest.requests_per_second`."""
    request_burst: int = 400
    """How many of them may come at once."""
    loop_share: float = 0.1
    """Of the API server's time, for one user who is no administrator while others ask too; 0 is no limit. Who uses more
    is served later, and nothing is refused that waits less than ten seconds."""
    watchers: int = 2000
    """Open watches, followed logs and sessions (exec, attach, port-forward) in all, and as many event streams of REST.
    More: 429."""
    watchers_per_user: int = 400
    """The same for one user name; administrators are bound by `watchers` only. More: 429."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (10.0.0.0/8) of reverse proxies whose X-Forwarded-For says who calls. Empty: nobody's."""
