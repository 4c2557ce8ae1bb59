"""What one caller may cost on any port. Every bound is one field here; `app` fills it from the settings.

docs/limits.md is made from these texts (`tools/limits_page.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    header_bytes: int = 64 * 1024
    """Request line, headers and trailers of one request. More: 431."""
    headers: int = 200
    """Header lines of one request, trailers included. More: 431."""
    url_bytes: int = 16 * 1024
    """The request line's target. Longer: 414."""
    body_bytes: int = 3 * 1024 * 1024
    """A request's body; kube-apiserver's own limit, so that what fits there fits here. The REST port has its own,
    `rest.max_body_bytes`. Larger: 413."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (10.0.0.0/8) of reverse proxies whose X-Forwarded-For says who calls. Empty: nobody's."""
