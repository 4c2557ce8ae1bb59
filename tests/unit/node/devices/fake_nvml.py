"""A stand-in for NVIDIA's C library below the real binding: the same functions, over GPUs that a test makes up.

`RECORDED` has the answers of an H200 with driver 580.159.04. Those of the MIG devices were not recorded on hardware,
but follow NVIDIA's documentation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from trainmaster.node.devices.gpus import Inventory
from trainmaster.node.devices.nvml import Nvml, NvmlError, NvmlGpu
from trainmaster.node.devices.users import GpuUser

OK, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT, LOST = 0, 3, 6, 7, 9, 10, 15
MISMATCH, UNKNOWN = 18, 999
XID = 0x8
_EVENTS = 77


@dataclass
class FakeMig:
    uuid: str
    gpu_instance: int
    pids: list[int] = field(default_factory=list)
    memory: int = 16384 << 20
    compute_instance: int = 0
    product: str = "NVIDIA H200 MIG 1g.18gb"


@dataclass
class FakeGpu:
    uuid: str
    product: str = "NVIDIA H200"
    memory: int = 143771 << 20
    pids: list[int] = field(default_factory=list)
    error: int = OK
    """With which it answers questions about its memory."""
    opens: bool = True
    busy: int | None = 0
    """None: the driver does not say."""
    used: int = 0
    mig: list[FakeMig] | None = None
    """None: not in MIG mode."""


RECORDED = FakeGpu("GPU-d311fe96-7d48-941d-99c7-c4bb9f78e9af", memory=150754820096, used=644939776)


class _Function:
    """Callable as a function of a loaded library is: results can be typed, arguments come by reference."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*(getattr(item, "_obj", item) for item in arguments))


def _point(target: Any, address: int) -> None:
    """Makes a pointer of the binding point to a handle."""
    ctypes.memmove(ctypes.addressof(target), ctypes.byref(ctypes.c_void_p(address)), ctypes.sizeof(ctypes.c_void_p))


class FakeNvml:
    def __init__(self, *gpus: FakeGpu, start: int = OK, has_events: bool = True, missing: tuple[str, ...] = ()) -> None:
        self.gpus = list(gpus)
        self.events: list[tuple[int, int, int]] = []
        """(index, type, data)"""
        self.is_open = False
        self._start = start
        self._has_events = has_events
        self._missing = missing
        """Functions that an older driver does not have."""

    def __getattr__(self, name: str) -> _Function:
        if name in self._missing or not hasattr(type(self), f"do_{name}"):
            raise AttributeError(name)
        return _Function(getattr(type(self), f"do_{name}").__get__(self))

    def _get(self, handle: Any) -> Any:
        """The GPU with handle 100, 200, ..., or its MIG device with 101, 102, ..."""
        address = ctypes.cast(handle, ctypes.c_void_p).value or 0
        gpu = self.gpus[address // 100 - 1]
        return gpu.mig[address % 100 - 1] if gpu.mig is not None and address % 100 else gpu

    def do_nvmlInitWithFlags(self, flags: Any) -> int:
        self.is_open = self._start == OK
        return self._start

    def do_nvmlShutdown(self) -> int:
        self.is_open = False
        return OK

    def do_nvmlErrorString(self, code: int) -> bytes:
        return b"Not known to the binding"

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count.value = len(self.gpus)
        return OK

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        _point(handle, 100 * (index.value + 1))
        return OK if self.gpus[index.value].opens else UNKNOWN

    def do_nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> int:
        text.value = self._get(handle).uuid.encode()
        return OK

    def do_nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        text.value = self._get(handle).product.encode()
        return OK

    def do_nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        found = self._get(handle)
        memory.total, memory.used = found.memory, getattr(found, "used", 0)
        return int(getattr(found, "error", OK))

    def do_nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        busy = getattr(self._get(handle), "busy", None)
        if busy is None:
            return NOT_SUPPORTED
        rates.gpu = busy
        return OK

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        pids = self._get(handle).pids
        room, count.value = count.value, len(pids)
        if room < len(pids):
            return INSUFFICIENT_SIZE
        for number, pid in enumerate(pids):
            found[number].pid = pid
        return OK

    do_nvmlDeviceGetComputeRunningProcesses_v2 = do_nvmlDeviceGetComputeRunningProcesses_v3

    def do_nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        current.value = pending.value = self._get(handle).mig is not None
        return OK

    def do_nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> int:
        count.value = 7
        return OK

    def do_nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, device: Any) -> int:
        if index.value >= len(self._get(handle).mig):
            return NOT_FOUND
        _point(device, (ctypes.cast(handle, ctypes.c_void_p).value or 0) + index.value + 1)
        return OK

    def do_nvmlDeviceGetGpuInstanceId(self, handle: Any, number: Any) -> int:
        number.value = self._get(handle).gpu_instance
        return OK

    def do_nvmlDeviceGetComputeInstanceId(self, handle: Any, number: Any) -> int:
        number.value = self._get(handle).compute_instance
        return OK

    def do_nvmlEventSetCreate(self, events: Any) -> int:
        _point(events, _EVENTS)
        return OK if self._has_events else NOT_SUPPORTED

    def do_nvmlEventSetFree(self, events: Any) -> int:
        return OK

    def do_nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> int:
        assert (kinds.value, ctypes.cast(events, ctypes.c_void_p).value) == (XID, _EVENTS)
        return OK

    def do_nvmlEventSetWait_v2(self, events: Any, event: Any, timeout: Any) -> int:
        assert timeout.value == 0, "waiting would block the reader"
        if not self.events:
            return TIMEOUT
        index, event.eventType, event.eventData = self.events.pop(0)
        device = type(event.device)()
        _point(device, 100 * (index + 1))
        event.device = device
        return OK


def open_nvml(library: FakeNvml) -> Nvml:
    """With the real binding. One at a time is open, because the binding has one library."""
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()
    return Nvml(pynvml)


class FakeReader:
    """What the server sees of a library: read in this process, and opened when first asked."""

    def __init__(self, library: FakeNvml) -> None:
        self.library = library
        self.trouble = ""
        self._nvml: Nvml | None = None

    def list_gpus(self) -> list[NvmlGpu]:
        if self.trouble:
            raise NvmlError(self.trouble)
        if self._nvml is None:
            self._nvml = open_nvml(self.library)
        return self._nvml.list_gpus()

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()


class FakeUsers:
    """Processes that a test makes up: of Pods, or foreign. One without an entry in `ended` runs."""

    def __init__(self) -> None:
        self.pods: dict[int, tuple[str, str, str]] = {}
        self.ended: set[int] = set()

    def is_running(self, pid: int) -> bool:
        return pid not in self.ended

    def find_user(self, pid: int) -> GpuUser | None:
        if pid in self.ended:
            return None
        pod = self.pods.get(pid)
        return GpuUser(pid, f"process {pid}" + (f" of Pod {pod[0]}/{pod[1]}" if pod else " (python) of bob"), pod)


def make_inventory(library: FakeNvml, users: FakeUsers | None = None) -> Inventory:
    return Inventory(FakeReader(library), users or FakeUsers())
