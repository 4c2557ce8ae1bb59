"""TCP options with which a connection to a machine that has died is noticed."""

from __future__ import annotations

import socket
from contextlib import suppress

_SIGNS_OF_LIFE = {
    (socket.SOL_SOCKET, "SO_KEEPALIVE"): 1,
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE"): 30,
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL"): 10,
    (socket.IPPROTO_TCP, "TCP_KEEPCNT"): 3,
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"): 60_000,
}
"""A machine that dies closes no connection. With these options the kernel notices within a minute, also while a watch
waits for an event that would never come."""


def ask_for_signs_of_life(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for (level, name), value in _SIGNS_OF_LIFE.items():
        # Not every system has all of them.
        if hasattr(socket, name):
            with suppress(OSError):
                sock.setsockopt(level, getattr(socket, name), value)
