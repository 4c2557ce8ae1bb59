"""Lists the nodes under /dev that a container needs for the GPUs leased to it.

A sandbox has its own /dev, and devices that are not in it cannot be opened, so leases are enforced. The driver names
nodes by minor number, which need not follow the order on the PCI bus; its own listing provides the mapping. In the
container CUDA counts only devices that it can open: the first leased GPU is number 0, as on a cluster.
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
    """UUID -> minor number, as reported by the driver; empty if it does not."""
    found = {}
    for path in sorted(listing.glob("*/information")):
        try:
            facts = dict(_LINE.findall(path.read_text()))
            found[facts["GPU UUID"]] = int(facts["Device Minor"])
        except (OSError, KeyError, ValueError):
            continue
    return found


def renumber(nodes: Sequence[str]) -> dict[str, str]:
    """The variables for a container that can open only these nodes."""
    count = sum(bool(re.fullmatch(r"/dev/nvidia\d+", node)) for node in nodes)
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))} if count else {}
