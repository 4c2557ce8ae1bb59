"""The annotations for GPUs on Nodes and Pods. Pure; only this module knows their format.

The node agent writes the annotation `trainmaster.dev/devices` on the Node, with one entry per GPU: index, id, product,
memory, and the reason if it cannot be leased (`unhealthy`: permanently; `held`: currently). The scheduler writes the
same annotation on a Pod when it binds it, with the GPUs leased to each container. That annotation is the lease: it ends
with the Pod, and there is no other record of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from trainmaster.api.labels import DEVICES
from trainmaster.api.meta import Fields, Object
from trainmaster.api.pods.requests import GPU, count_devices, is_sidecar, read_amounts

DECLARED = "declared-"
"""Prefix of the ids of GPUs that do not exist."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of a machine."""

    index: int
    """Its number in PCI order, as nvidia-smi and, with CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA count."""
    id: str
    """Its UUID, which survives reboots; `declared-N` for a GPU that is only declared in the settings."""
    product: str = ""
    memory_mib: int = 0
    unhealthy: str = ""
    """Why it is not leased any more, until an administrator clears this."""
    held: str = ""
    """Why it is not leased now, as in `GPU 0 <held>`: a process that has no lease uses it."""
    mig: str = ""
    """For a MIG device: `<UUID of its GPU>/<GPU instance>/<compute instance>`."""

    @property
    def is_free(self) -> bool:
        """Whether the machine allows leasing it."""
        return not self.unhealthy and not self.held


def render_devices(devices: Sequence[Device]) -> str:
    entries = []
    for device in devices:
        entry: dict[str, Any] = {"index": device.index, "id": device.id}
        if device.product:
            entry["product"] = device.product
        if device.memory_mib:
            entry["memoryMiB"] = device.memory_mib
        if device.unhealthy:
            entry["unhealthy"] = device.unhealthy
        if device.held:
            entry["held"] = device.held
        if device.mig:
            entry["mig"] = device.mig
        entries.append(entry)
    return orjson.dumps(entries).decode()


def list_devices(node: Object) -> list[Device]:
    """The GPUs of a Node. A Node that only declares a count has that many unnamed GPUs."""
    entries = _read(node)
    if isinstance(entries, list):
        return [_read_device(entry) for entry in entries if isinstance(entry, dict) and "id" in entry]
    count = read_amounts((node.get("status") or {}).get("allocatable")).get(GPU, 0)
    return [Device(number, f"{DECLARED}{number}") for number in range(count)]


def _read_device(entry: Mapping[str, Any]) -> Device:
    index, memory = entry.get("index", 0), entry.get("memoryMiB", 0)
    return Device(
        index if isinstance(index, int) else 0,
        str(entry["id"]),
        str(entry.get("product", "")),
        memory if isinstance(memory, int) else 0,
        str(entry.get("unhealthy", "")),
        str(entry.get("held", "")),
        str(entry.get("mig", "")),
    )


def render_lease(spec: Mapping[str, Any], devices: Sequence[Device]) -> str:
    """The annotation of a Pod with these devices. They are divided among containers and sidecars; init containers,
    which run before, use the same ones."""
    shares: dict[str, list[dict[str, Any]]] = {}
    rest = list(devices)
    inits = spec.get("initContainers") or ()
    for container in (*(spec.get("containers") or ()), *(entry for entry in inits if is_sidecar(entry))):
        count = count_devices(container)
        if count:
            shares[container["name"]] = [_render_share(item) for item in rest[:count]]
            rest = rest[count:]
    for container in inits:
        count = 0 if is_sidecar(container) else count_devices(container)
        if count:
            shares[container["name"]] = [_render_share(item) for item in devices[:count]]
    return orjson.dumps(shares).decode()


def _render_share(device: Device) -> dict[str, Any]:
    share: dict[str, Any] = {"index": device.index, "id": device.id}
    return {**share, "mig": device.mig} if device.mig else share


def list_leased(pod: Fields) -> list[str]:
    """Ids of the GPUs leased to a Pod, without duplicates."""
    return [device.id for device in list_shares(pod)]


def devices_env(pod: Fields, container: str = "") -> dict[str, str]:
    """The variables that restrict processes to their GPUs; without a lease they see none.

    For one container, or without a name for the whole Pod. CUDA_VISIBLE_DEVICES has numbers in PCI order, because many
    programs cannot read UUIDs there, except for MIG devices, which have no numbers; for NVIDIA_VISIBLE_DEVICES UUIDs
    are usual.
    """
    devices = list_shares(pod, container)
    if not devices:
        return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    is_mig = any(device.mig for device in devices)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(device.id if is_mig else str(device.index) for device in devices),
        "NVIDIA_VISIBLE_DEVICES": ",".join(device.id for device in devices),
    }


def list_shares(pod: Fields, container: str = "") -> list[Device]:
    """The GPUs of one container, or without a name of the whole Pod; without duplicates."""
    shares = _read(pod)
    lists = shares if isinstance(shares, dict) else {}
    chosen = [lists.get(container)] if container else list(lists.values())
    devices = {
        str(entry["id"]): _read_device(entry)
        for share in chosen
        if isinstance(share, list)
        for entry in share
        if isinstance(entry, dict) and "id" in entry
    }
    return list(devices.values())


def _read(obj: Fields) -> Any:
    text = (obj["metadata"].get("annotations") or {}).get(DEVICES)
    if not text:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
