"""Addresses that settings name: which of them nobody on the way can read or change.

Loaded by every command, so it imports little.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_LOOPBACK = re.compile(r"localhost|::1|127(\.\d{1,3}){3}")


def is_private(url: str) -> bool:
    """https, or http that does not leave this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) if parts.scheme == "https" else parts.scheme == "http" and _LOOPBACK.fullmatch(host) is not None
