"""Which nodes under /dev a container needs for the GPUs that were leased to it.

A sandbox has a /dev of its own: what is not put there cannot be opened, so a lease is a fence there and not advice. The
driver numbers nodes by minor number, which need not be the order of the PCI bus; its own listing says which is which.
Inside, CUDA counts only what it can open: the first leased GPU is number 0, as in a container on a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainmaster.api.devices import list_shares
from trainmaster.api.meta import Fields

_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
_LINE = re.compile(r"^(GPU UUID|Device Minor):\s*(\S+)", re.MULTILINE)
LISTING = Path("/proc/driver/nvidia/gpus")
DEV = Path("/dev")


def list_nodes(pod: Fields, container: str, *, dev: Path = DEV, listing: Path = LISTING) -> tuple[str, ...]:
    """Paths of the nodes; empty without a lease, and for GPUs that were only declared."""
    shares = list_shares(pod, container)
    minors = read_minors(listing) if shares else {}
    own = [f"nvidia{minors.get(id_, index)}" for index, id_ in shares if not id_.startswith("declared-")]
    if not own:
        return ()
    return tuple(f"/dev/{name}" for name in (*own, *_COMMON) if (dev / name).exists())


def read_minors(listing: Path) -> Mapping[str, int]:
    """UUID to minor number, as the driver tells it; empty when it does not."""
    found = {}
    for path in sorted(listing.glob("*/information")):
        try:
            facts = dict(_LINE.findall(path.read_text()))
            found[facts["GPU UUID"]] = int(facts["Device Minor"])
        except (OSError, KeyError, ValueError):
            continue
    return found


def renumber(nodes: Sequence[str]) -> dict[str, str]:
    """The variables for a container that can open only these."""
    count = sum(bool(re.fullmatch(r"/dev/nvidia\d+", node)) for node in nodes)
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))} if count else {}
