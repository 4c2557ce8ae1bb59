"""A stand-in for NVIDIA's library: the same C functions, written in Python, over GPUs that a test makes up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

OK, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT, LOST = 0, 3, 6, 7, 10, 15
XID = 0x8


@dataclass
class FakeGpu:
    uuid: str
    product: str = "NVIDIA H200"
    memory: int = 143771 * 1024**2
    pids: list[int] = field(default_factory=list)
    lost: bool = False
    opens: bool = True
    busy: int | None = 0
    """None: the driver does not say."""
    used: int = 0


class _Function:
    """Callable as a function of a loaded library is: results can be typed, arguments come by reference."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*(getattr(item, "_obj", item) for item in arguments))


class FakeNvml:
    def __init__(self, *gpus: FakeGpu, starts: bool = True, has_events: bool = True) -> None:
        self.gpus = list(gpus)
        self.events: list[tuple[int, int, int]] = []
        """(index, type, data)"""
        self.is_open = False
        self._starts = starts
        self._has_events = has_events

    def __getattr__(self, name: str) -> _Function:
        return _Function(getattr(type(self), f"do_{name}").__get__(self))

    def _get(self, handle: Any) -> FakeGpu:
        index: int = handle.value - 1
        return self.gpus[index]

    def do_nvmlInit_v2(self) -> int:
        self.is_open = self._starts
        return OK if self._starts else 9

    def do_nvmlShutdown(self) -> int:
        self.is_open = False
        return OK

    def do_nvmlErrorString(self, code: int) -> bytes:
        return {9: b"Driver Not Loaded", LOST: b"GPU is lost", NOT_FOUND: b"Not Found"}.get(code, b"Unknown Error")

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count.value = len(self.gpus)
        return OK

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle.value = index + 1
        return OK if self.gpus[index].opens else NOT_FOUND

    def do_nvmlDeviceGetUUID(self, handle: Any, text: Any, size: int) -> int:
        text.value = self._get(handle).uuid.encode()
        return OK

    def do_nvmlDeviceGetName(self, handle: Any, text: Any, size: int) -> int:
        text.value = self._get(handle).product.encode()
        return OK

    def do_nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        if self._get(handle).lost:
            return LOST
        memory.total = self._get(handle).memory
        memory.used = self._get(handle).used
        return OK

    def do_nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        busy = self._get(handle).busy
        if busy is None:
            return NOT_SUPPORTED
        rates.gpu = busy
        return OK

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        pids = self._get(handle).pids
        if len(pids) > count.value:
            count.value = len(pids)
            return INSUFFICIENT_SIZE
        count.value = len(pids)
        for number, pid in enumerate(pids):
            found[number].pid = pid
        return OK

    def do_nvmlEventSetCreate(self, events: Any) -> int:
        events.value = 77
        return OK if self._has_events else 3

    def do_nvmlEventSetFree(self, events: Any) -> int:
        return OK

    def do_nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> int:
        assert (kinds.value, events.value) == (XID, 77)
        return OK

    def do_nvmlEventSetWait_v2(self, events: Any, event: Any, timeout: int) -> int:
        assert timeout == 0, "waiting would block the node"
        if not self.events:
            return TIMEOUT
        index, event.type, event.data = self.events.pop(0)
        event.device = index + 1
        return OK
