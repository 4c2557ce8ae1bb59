"""The GPUs of this machine for the Node object: detected through NVML, or declared if there are none.

`Inventory.read` returns the current devices, with the reason if one cannot be leased. A device that is marked as broken
in `before` (the Node's annotation) stays so until the machine is restarted or an administrator removes the annotation.
If NVML fails or does not answer, the GPUs known so far are kept, and are not leased until it answers again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from trainmaster.api.devices import DECLARED, Device
from trainmaster.node.devices.nvml import NvmlError, NvmlGpu
from trainmaster.node.devices.users import GpuUser, GpuUsers


class ListsGpus(Protocol):
    """The part of `reader.GpuReader` that is used here."""

    def list_gpus(self) -> list[NvmlGpu]: ...

    def close(self) -> None: ...


class FindsUsers(Protocol):
    """The part of `users.GpuUsers` that is used here."""

    def find_user(self, pid: int) -> GpuUser | None: ...

    def is_running(self, pid: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class FoundDevices:
    devices: tuple[Device, ...]
    note: str = ""
    """A message for the administrator: fewer GPUs than declared."""
    trouble: str = ""
    """Why the GPUs could not be read."""
    users: tuple[tuple[str, GpuUser], ...] = ()
    """(device id, process of one of our Pods on it). Whether the Pod has a lease is for the caller to check."""


@dataclass(slots=True)
class Inventory:
    reader: ListsGpus
    users: FindsUsers = field(default_factory=GpuUsers)
    _known: tuple[Device, ...] = ()
    _holders: frozenset[int] = frozenset()

    def close(self) -> None:
        self.reader.close()

    def read(self, declared: int | None, before: Sequence[Device] = ()) -> FoundDevices:
        """`declared`: the number of GPUs that the machine should have; None: as many as are detected. Blocks, but not
        for long."""
        trouble = ""
        try:
            gpus = self.reader.list_gpus()
        except NvmlError as error:
            trouble = str(error)
            gpus = []
        users: list[tuple[str, GpuUser]] = []
        if gpus:
            marks = {device.id: device.unhealthy for device in before if device.unhealthy}
            self._known = devices = tuple(self._build(gpu, marks, users) for gpu in gpus)
            self._holders = frozenset(user.pid for _, user in users)
        else:
            devices = self._list_silent(before, trouble) if trouble else ()
        if not devices:
            made = tuple(Device(number, f"{DECLARED}{number}") for number in range(declared or 0))
            return FoundDevices(made, trouble=trouble)
        own = tuple((id_, user) for id_, user in users if user.pod is not None)
        if declared is None:
            return FoundDevices(devices, "", trouble, own)
        note = f"{declared} GPUs are declared and {len(devices)} were found" if declared > len(devices) else ""
        return FoundDevices(devices[:declared], note, trouble, own)

    def has_holder_ended(self) -> bool:
        """Whether a process that used a GPU at the last reading is gone."""
        return any(not self.users.is_running(pid) for pid in self._holders)

    def _list_silent(self, before: Sequence[Device], trouble: str) -> tuple[Device, ...]:
        known = self._known or tuple(device for device in before if not device.id.startswith(DECLARED))
        return tuple(replace(device, held=f"cannot be checked: {trouble}") for device in known)

    def _build(self, gpu: NvmlGpu, marks: dict[str, str], users: list[tuple[str, GpuUser]]) -> Device:
        device = Device(gpu.index, gpu.uuid, gpu.product, gpu.memory_mib, mig=gpu.mig)
        trouble = marks.get(gpu.uuid) or gpu.trouble
        if trouble:
            return replace(device, unhealthy=trouble)
        if gpu.silence:
            return replace(device, held=f"cannot be checked: the driver answers {gpu.silence!r}")
        found = [user for user in map(self.users.find_user, gpu.pids) if user is not None]
        users.extend((gpu.uuid, user) for user in found)
        foreign = [user for user in found if user.pod is None]
        if foreign:
            others = f" and {len(foreign) - 1} more, which belong" if len(foreign) > 1 else ", which belongs"
            return replace(device, held=f"is used by {foreign[0].text}{others} to no job")
        return device
