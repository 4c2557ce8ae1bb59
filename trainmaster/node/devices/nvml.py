"""NVIDIA's management library through ctypes: which GPUs exist, which processes use them, and whether they are healthy.

Contains only what leasing and `trainmaster top` need. The library may be missing; tests use a fake with the same
functions (`tests/unit/node/devices/fake_nvml.py`) and run the same suite on both. Calls may take long while the driver
is idle, so the node makes them in a thread.

A GPU is broken when the driver has lost it, or has reported a critical error (Xid) that programs cannot cause.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_OK, _NOT_SUPPORTED, _INSUFFICIENT_SIZE, _TIMEOUT, _LOST, _RESET = 0, 3, 7, 10, 15, 16
_XID_EVENTS = 0x8
_TEXT = 96
_PROCESSES = 256
# Xids that faulty programs cause on a healthy GPU, as in NVIDIA's device plugin.
_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})


class NvmlError(Exception):
    """The library is missing or does not respond."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    index: int
    uuid: str
    product: str
    memory_mib: int
    pids: tuple[int, ...]
    """Compute processes on it; graphics processes do not count."""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The utilization of one GPU."""

    uuid: str
    percent: int | None
    """Recent utilization; None if the driver does not report it."""
    memory_mib: int


class Nvml:
    """Open from construction to `close`. Raises NvmlError if the library is missing."""

    def __init__(self, library: Any = None) -> None:
        self._library = library if library is not None else _load()
        self._check(self._library.nvmlInit_v2(), "nvmlInit")
        self._broken: dict[str, str] = {}
        self._handles = self._list_handles()
        self._events = self._listen()

    def close(self) -> None:
        if self._events is not None:
            self._library.nvmlEventSetFree(self._events)
        self._library.nvmlShutdown()

    def list_gpus(self) -> list[NvmlGpu]:
        self._read_events()
        return [self._read(index, uuid, handle) for index, (uuid, handle) in enumerate(self._handles)]

    def list_loads(self) -> list[Load]:
        """For the GPUs that respond."""
        found = []
        for uuid, handle in self._handles:
            memory, rates = _Memory(), _Rates()
            if uuid in self._broken or self._library.nvmlDeviceGetMemoryInfo(handle, byref(memory)) != _OK:
                continue
            code = self._library.nvmlDeviceGetUtilizationRates(handle, byref(rates))
            found.append(Load(uuid, rates.gpu if code == _OK else None, memory.used // 1024**2))
        return found

    def _list_handles(self) -> list[tuple[str, Any]]:
        count = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetCount_v2(byref(count)), "nvmlDeviceGetCount")
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self._library.nvmlDeviceGetHandleByIndex_v2(index, byref(handle))
            uuid = self._get_text(self._library.nvmlDeviceGetUUID, handle) if code == _OK else ""
            uuid = uuid or f"index-{index}"
            if code != _OK:
                self._broken[uuid] = f"the driver does not open it ({self._describe(code)})"
            found.append((uuid, handle))
        return found

    def _listen(self) -> Any:
        """An event set for critical errors; None if the driver does not support it."""
        events = ctypes.c_void_p()
        if self._library.nvmlEventSetCreate(byref(events)) != _OK:
            return None
        heard = [
            self._library.nvmlDeviceRegisterEvents(handle, ctypes.c_ulonglong(_XID_EVENTS), events) == _OK
            for uuid, handle in self._handles
            if uuid not in self._broken
        ]
        if any(heard):
            return events
        self._library.nvmlEventSetFree(events)
        return None

    def _read_events(self) -> None:
        """Reads events reported since the last call, without waiting."""
        for _ in range(1000):
            event = _Event()
            if self._events is None or self._library.nvmlEventSetWait_v2(self._events, byref(event), 0) != _OK:
                return
            if event.type != _XID_EVENTS or event.data in _OF_PROGRAMS:
                continue
            for uuid, handle in self._handles:
                if handle.value == event.device:
                    self._broken.setdefault(uuid, f"the driver reported the error Xid {event.data}")

    def _read(self, index: int, uuid: str, handle: Any) -> NvmlGpu:
        if uuid in self._broken:
            return NvmlGpu(index, uuid, "", 0, (), self._broken[uuid])
        memory = _Memory()
        code = self._library.nvmlDeviceGetMemoryInfo(handle, byref(memory))
        if code in (_LOST, _RESET):
            self._broken[uuid] = f"it does not answer any more ({self._describe(code)})"
            return NvmlGpu(index, uuid, "", 0, (), self._broken[uuid])
        product = self._get_text(self._library.nvmlDeviceGetName, handle)
        return NvmlGpu(index, uuid, product, memory.total // 1024**2, self._list_pids(handle))

    def _list_pids(self, handle: Any) -> tuple[int, ...]:
        size = _PROCESSES
        for _ in range(3):
            count = ctypes.c_uint(size)
            found = (_Process * size)()
            code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(handle, byref(count), found)
            if code == _INSUFFICIENT_SIZE:
                size = count.value + _PROCESSES
                continue
            return tuple(found[number].pid for number in range(count.value)) if code == _OK else ()
        return ()

    def _get_text(self, function: Any, handle: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT)
        return text.value.decode(errors="replace") if function(handle, text, _TEXT) == _OK else ""

    def _check(self, code: int, call: str) -> None:
        if code != _OK:
            raise NvmlError(f"{call}: {self._describe(code)}")

    def _describe(self, code: int) -> str:
        function = self._library.nvmlErrorString
        function.restype = ctypes.c_char_p
        text = function(code)
        return text.decode(errors="replace") if text else f"error {code}"


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NvmlError(f"{LIBRARY} is not installed: {error}") from None
