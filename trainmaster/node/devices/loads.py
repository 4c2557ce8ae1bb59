"""What Pods use of the GPUs that are leased to them. Blocks while the driver is asked."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.api.devices import list_shares
from trainmaster.api.meta import Fields
from trainmaster.jobs.usage import GpuUsage
from trainmaster.node.devices.nvml import NvmlError, NvmlGpu
from trainmaster.node.devices.reader import GpuReader


def list_loads(reader: GpuReader) -> dict[str, NvmlGpu]:
    """This machine's GPUs by id; empty if they cannot be read."""
    try:
        return {gpu.uuid: gpu for gpu in reader.list_gpus() if not gpu.trouble and not gpu.silence}
    except NvmlError:
        return {}


def list_gpu_usage(pod: Fields, loads: Mapping[str, NvmlGpu]) -> tuple[GpuUsage, ...]:
    """The Pod's GPUs, with their load as far as it is known."""
    found = []
    for device in list_shares(pod):
        load = loads.get(device.id)
        known = (None, None) if load is None else (load.percent, load.used_mib)
        found.append(GpuUsage(device.index, device.id, *known))
    return tuple(found)
