"""What an attack costs the server, in processor time: a busy machine makes no request dearer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attacks.site import Site

MOST_CPU_SECONDS = 1.5
"""For one hostile request. On today's machines what is refused well takes a twentieth of it."""


def measure_cpu(site: Site) -> float:
    """Seconds of processor time that the server has used since it started."""
    stat = Path(f"/proc/{site.server.process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def cheap(site: Site, most: float = MOST_CPU_SECONDS) -> Iterator[None]:
    """What happens inside costs the server little, and it is there afterwards."""
    before = measure_cpu(site)
    yield
    spent = measure_cpu(site) - before
    assert site.is_alive()
    assert spent < most
