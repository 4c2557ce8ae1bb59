"""Lists the nodes under /dev that a container needs for the GPUs leased to it.

A sandbox has its own /dev, and devices that are not in it cannot be opened, so leases are enforced. The driver names
nodes by minor number, which need not follow the order on the PCI bus; its own listing provides the mapping. In the
container CUDA counts only devices that it can open: the first leased GPU is number 0, as on a cluster. A MIG device
needs the node of its GPU, and those that give access to its instances.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainmaster.api.devices import DECLARED, Device, list_shares
from trainmaster.api.meta import Fields

_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_LINE = re.compile(r"^(GPU UUID|Device Minor|DeviceFileMinor):\s*(\S+)", re.MULTILINE)
DRIVER = Path("/proc/driver/nvidia")
DEV = Path("/dev")
_CAPABILITY = "nvidia-caps/nvidia-cap"


def list_nodes(pod: Fields, container: str, *, dev: Path = DEV, driver: Path = DRIVER) -> tuple[str, ...]:
    """Paths of the nodes; empty without a lease, and for GPUs that were only declared."""
    devices = [device for device in list_shares(pod, container) if not device.id.startswith(DECLARED)]
    if not devices:
        return ()
    minors = read_minors(driver)
    own = [name for device in devices for name in _list_own(device, minors, driver)]
    return tuple(f"/dev/{name}" for name in dict.fromkeys((*own, *_COMMON)) if (dev / name).exists())


def _list_own(device: Device, minors: Mapping[str, int], driver: Path) -> Iterator[str]:
    gpu, _, instances = device.mig.partition("/")
    minor = minors.get(gpu or device.id, device.index)
    yield f"nvidia{minor}"
    if not re.fullmatch(r"\d+/\d+", instances):
        return
    first, second = instances.split("/")
    place = driver / f"capabilities/gpu{minor}/mig/gi{first}"
    for path in (place / "access", place / f"ci{second}/access"):
        number = _read_facts(path).get("DeviceFileMinor")
        if number is not None:
            yield f"{_CAPABILITY}{number}"


def read_minors(driver: Path) -> Mapping[str, int]:
    """UUID -> minor number, as reported by the driver; empty if it does not."""
    facts = [_read_facts(path) for path in sorted(driver.glob("gpus/*/information"))]
    return {each["GPU UUID"]: int(each["Device Minor"]) for each in facts if each.get("Device Minor", "").isdigit()}


def _read_facts(path: Path) -> dict[str, str]:
    try:
        return dict(_LINE.findall(path.read_text()))
    except OSError:
        return {}


def renumber(nodes: Sequence[str]) -> dict[str, str]:
    """The variables for a container that can open only these nodes. MIG devices keep their names."""
    if any(_CAPABILITY in node for node in nodes):
        return {}
    count = sum(bool(re.fullmatch(r"/dev/nvidia\d+", node)) for node in nodes)
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))} if count else {}
