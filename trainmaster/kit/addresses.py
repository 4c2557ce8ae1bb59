"""Tells whether traffic to a URL from the settings can be read or changed on the way.

Every command loads this module, so it imports little.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_LOOPBACK = re.compile(r"localhost|::1|127(\.\d{1,3}){3}")


def is_private(url: str) -> bool:
    """True for https, and for http to this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) if parts.scheme == "https" else parts.scheme == "http" and _LOOPBACK.fullmatch(host) is not None
