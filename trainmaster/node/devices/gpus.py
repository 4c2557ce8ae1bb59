"""The GPUs of this machine for the Node object: detected through NVML, or declared if there are none.

`Inventory.read` returns the current devices, with the reason if one cannot be leased. A device that is marked as broken
in `before` (the Node's annotation) stays so until the machine is restarted or an administrator removes the annotation.
It does not check whether a process on a GPU belongs to a job: the scheduler considers only GPUs without a lease.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from trainmaster.api.devices import Device
from trainmaster.node.devices.nvml import Nvml, NvmlError, NvmlGpu


class GpuReader(Protocol):
    """The part of `nvml.Nvml` that is used here."""

    def list_gpus(self) -> list[NvmlGpu]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FoundDevices:
    devices: tuple[Device, ...]
    note: str = ""
    """A message for the administrator: fewer GPUs than declared, or a library that does not respond."""


class Inventory:
    def __init__(
        self,
        open_reader: Callable[[], GpuReader] = Nvml,
        describe_process: Callable[[int], str] | None = None,
    ) -> None:
        self._describe = describe_process or describe_process_of
        self._reader: GpuReader | None = None
        self._trouble = ""
        try:
            self._reader = open_reader()
        except NvmlError as error:
            self._trouble = str(error)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def read(self, declared: int | None, before: Sequence[Device] = ()) -> FoundDevices:
        """`declared`: the number of GPUs that the machine should have; None: as many as are detected. Blocks."""
        gpus = self._reader.list_gpus() if self._reader is not None else []
        if not gpus:
            return FoundDevices(tuple(Device(number, f"declared-{number}") for number in range(declared or 0)))
        marks = {device.id: device.unhealthy for device in before if device.unhealthy}
        devices = [self._build(gpu, marks) for gpu in gpus]
        if declared is None:
            return FoundDevices(tuple(devices))
        note = f"{declared} GPUs are declared and {len(devices)} were found" if declared > len(devices) else ""
        return FoundDevices(tuple(devices[:declared]), note)

    def _build(self, gpu: NvmlGpu, marks: dict[str, str]) -> Device:
        device = Device(gpu.index, gpu.uuid, gpu.product, gpu.memory_mib)
        trouble = marks.get(gpu.uuid) or gpu.trouble
        if trouble:
            return replace(device, unhealthy=trouble)
        if gpu.pids:
            others = f" and {len(gpu.pids) - 1} others" if len(gpu.pids) > 1 else ""
            return replace(device, held=self._describe(gpu.pids[0]) + others)
        return device


def describe_process_of(pid: int) -> str:
    """ "process 4242 (python) of bob"; less where less can be read."""
    folder = Path("/proc") / str(pid)
    try:
        name, owner = (folder / "comm").read_text().strip(), folder.stat().st_uid
    except OSError:
        return f"process {pid}"
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    return f"process {pid} ({name}) of {user}"
