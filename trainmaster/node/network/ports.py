"""Leases rendezvous ports on a shared network, one per gang, so that two jobs may both request 29500.

The requested port is used if it is free. Leases are in memory and are rebuilt from Pod directories (`restore`) when the
control plane restarts.
"""

from __future__ import annotations

import socket
from collections.abc import Collection


class PortLeases:
    def __init__(self) -> None:
        self._by_gang: dict[str, dict[int, int]] = {}

    def lease(self, gang: str, asked: int) -> int:
        """The port that this gang uses instead of `asked`; the same for all its Pods."""
        ports = self._by_gang.setdefault(gang, {})
        if asked not in ports:
            ports[asked] = self._choose(gang, asked)
        return ports[asked]

    def restore(self, gang: str, asked: int, leased: int) -> None:
        self._by_gang.setdefault(gang, {})[asked] = leased

    def release(self, gang: str) -> None:
        self._by_gang.pop(gang, None)

    def list_leases(self, gang: str) -> dict[int, int]:
        return dict(self._by_gang.get(gang, {}))

    def _choose(self, gang: str, asked: int) -> int:
        taken = {port for other, ports in self._by_gang.items() if other != gang for port in ports.values()}
        if asked not in taken and is_free(asked):
            return asked
        return choose_free(taken)


def is_free(port: int) -> bool:
    """Also checks for recently closed connections: not every program reuses such a port (XGBoost does not)."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def choose_free(taken: Collection[int]) -> int:
    """Avoids ports that are leased but not listened on yet. Raises OSError if there is none."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
    raise OSError("no free port found")
