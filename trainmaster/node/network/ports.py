"""Leases rendezvous ports on a shared network, one per gang, so that two jobs may both request 29500.

In a gang whose Pods all listen on the same port, each Pod has its own lease, under its name.

The requested port is used if it is free. Leases are in memory and are rebuilt from Pod directories (`restore`) when the
control plane restarts.
"""

from __future__ import annotations

import socket
from collections.abc import Collection

AskedPort = tuple[str, int]
"""(name of the Pod that listens, or "" for one of the gang; port)."""


class PortLeases:
    def __init__(self) -> None:
        self._by_gang: dict[str, dict[AskedPort, int]] = {}

    def lease(self, gang: str, asked: int, host: str = "") -> int:
        """The port that this gang uses instead of `asked`: that of one of its Pods, or the same for all."""
        ports, key = self._by_gang.setdefault(gang, {}), (host, asked)
        if key not in ports:
            ports[key] = self._choose(asked)
        return ports[key]

    def restore(self, gang: str, asked: AskedPort, leased: int) -> None:
        self._by_gang.setdefault(gang, {})[asked] = leased

    def release(self, gang: str) -> None:
        self._by_gang.pop(gang, None)

    def list_leases(self, gang: str) -> dict[AskedPort, int]:
        return dict(self._by_gang.get(gang, {}))

    def _choose(self, asked: int) -> int:
        taken = {port for ports in self._by_gang.values() for port in ports.values()}
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
