"""Reads this machine's GPUs with NVIDIA's own binding (nvidia-ml-py): names, processes, utilization and health.

The server runs this file as a separate program (`serve`), because importing the binding takes as long as a good part of
the server's start, and calls to a faulty driver may hang or crash. For the same reason it imports only the standard
library and the binding.

A GPU is broken if the driver has lost it, or has reported a critical error (Xid) that programs cannot cause.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import IO, Any

# Xids that faulty programs cause on a healthy GPU, as in NVIDIA's device plugin.
_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
_MOST_EVENTS = 1000
"""Events read at a time, so that a stream of them cannot keep the reader busy."""


class NvmlError(Exception):
    """NVML is missing or does not work; the text says why."""


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """A GPU, or a MIG device of a GPU in MIG mode."""

    index: int
    uuid: str
    product: str = ""
    memory_mib: int = 0
    pids: tuple[int, ...] = ()
    """Compute processes on it; graphics processes do not count."""
    trouble: str = ""
    """Why it is broken."""
    silence: str = ""
    """The error with which the driver answered this time."""
    percent: int | None = None
    """Recent utilization; None if the driver does not report it."""
    used_mib: int = 0
    mig: str = ""
    """For a MIG device: `<UUID of its GPU>/<GPU instance>/<compute instance>`."""


@dataclass(frozen=True, slots=True)
class _Handle:
    uuid: str
    handle: Any
    mig: str = ""

    @property
    def gpu(self) -> str:
        """UUID of the physical GPU."""
        return self.mig.partition("/")[0] or self.uuid


class Nvml:
    """Open from construction to `close`. `binding`: the module pynvml."""

    def __init__(self, binding: Any) -> None:
        self._nvml = binding
        try:
            binding.nvmlInit()
        except binding.NVMLError as error:
            raise NvmlError(f"NVML cannot be used: {error}") from None
        self._broken: dict[str, str] = {}
        self._parts: dict[str, list[_Handle]] = {}
        """The MIG devices last seen of each GPU in MIG mode."""
        try:
            self._handles = list(self._list_handles())
        except binding.NVMLError as error:
            raise NvmlError(f"NVML does not list the GPUs: {error}") from None
        self._events = self._listen()

    def close(self) -> None:
        if self._events is not None:
            self._nvml.nvmlEventSetFree(self._events)
        self._nvml.nvmlShutdown()

    def list_gpus(self) -> list[NvmlGpu]:
        """A GPU in MIG mode is listed as its MIG devices."""
        self._read_events()
        found = [item for handle in self._handles for item in self._list_parts(handle)]
        return [self._read(index, item) for index, item in enumerate(found)]

    def _list_handles(self) -> Iterator[_Handle]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                yield _Handle(self._nvml.nvmlDeviceGetUUID(handle), handle)
            except self._nvml.NVMLError as error:
                self._broken[f"index-{index}"] = f"the driver does not open it ({error})"
                yield _Handle(f"index-{index}", None)

    def _list_parts(self, gpu: _Handle) -> list[_Handle]:
        """The MIG devices of a GPU in MIG mode; otherwise the GPU."""
        nvml = self._nvml
        if gpu.uuid in self._broken:
            return self._parts.get(gpu.uuid, [gpu])
        if not self._try((0, 0), nvml.nvmlDeviceGetMigMode, gpu.handle)[0]:
            return [gpu]
        found = []
        for number in range(self._try(0, nvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
                instances = nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)
                place = "/".join(map(str, (gpu.uuid, *instances)))
                found.append(_Handle(nvml.nvmlDeviceGetUUID(handle), handle, place))
            except nvml.NVMLError:
                continue  # there is no MIG device with this number
        self._parts[gpu.uuid] = found
        return found

    def _listen(self) -> Any:
        """An event set for critical errors; None if the driver does not support it."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        heard = [item.handle is not None and self._register(item.handle, events) for item in self._handles]
        if any(heard):
            return events
        nvml.nvmlEventSetFree(events)
        return None

    def _register(self, handle: Any, events: Any) -> bool:
        try:
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        except self._nvml.NVMLError:
            return False
        return True

    def _read_events(self) -> None:
        """Reads events reported since the last call, without waiting."""
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            event = self._try(None, self._nvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                return
            if event.eventType != self._nvml.nvmlEventTypeXidCriticalError or event.eventData in _OF_PROGRAMS:
                continue
            for item in self._handles:
                if item.handle is not None and _get_address(item.handle) == _get_address(event.device):
                    self._broken.setdefault(item.uuid, f"the driver reported the error Xid {event.eventData}")

    def _read(self, index: int, item: _Handle) -> NvmlGpu:
        nvml = self._nvml
        if item.gpu in self._broken:
            return NvmlGpu(index, item.uuid, trouble=self._broken[item.gpu], mig=item.mig)
        product = self._try("", nvml.nvmlDeviceGetName, item.handle)
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(item.handle)
            total, used = memory.total >> 20, memory.used >> 20
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            total = used = 0  # GPUs that share the machine's memory
        except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired) as error:
            self._broken[item.gpu] = f"it does not answer any more ({error})"
            return NvmlGpu(index, item.uuid, product, trouble=self._broken[item.gpu], mig=item.mig)
        except nvml.NVMLError as error:
            return NvmlGpu(index, item.uuid, product, silence=str(error), mig=item.mig)
        rates = self._try(None, nvml.nvmlDeviceGetUtilizationRates, item.handle)
        percent = None if rates is None else rates.gpu
        pids = self._list_pids(item.handle)
        return NvmlGpu(index, item.uuid, product, total, pids, percent=percent, used_mib=used, mig=item.mig)

    def _list_pids(self, handle: Any) -> tuple[int, ...]:
        """Older drivers have only the second version of this function."""
        nvml = self._nvml
        for function in (nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v2):
            try:
                return tuple(sorted({process.pid for process in function(handle)}))
            except nvml.NVMLError_FunctionNotFound:
                continue
            except nvml.NVMLError:
                return ()
        return ()

    def _try(self, otherwise: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return otherwise


def _get_address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def serve(requests: IO[str], answers: IO[str], open_nvml: Callable[[], Nvml]) -> None:
    """Answers each line with the GPUs, or with the error, as a line of JSON. Ends with the requests."""
    try:
        nvml = open_nvml()
    except NvmlError as error:
        _answer(answers, {"error": str(error)})
        return
    for _ in requests:
        _answer(answers, {"gpus": [asdict(gpu) for gpu in nvml.list_gpus()]})
    nvml.close()


def _answer(answers: IO[str], content: dict[str, object]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def read_answer(line: str) -> list[NvmlGpu]:
    """Raises NvmlError if the reader reported an error."""
    content = json.loads(line)
    if "error" in content:
        raise NvmlError(content["error"])
    return [NvmlGpu(**{**entry, "pids": tuple(entry["pids"])}) for entry in content["gpus"]]


def _open_nvml() -> Nvml:
    try:
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        raise NvmlError(f"the package nvidia-ml-py cannot be imported: {error}") from None
    return Nvml(pynvml)


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    serve(sys.stdin, sys.stdout, _open_nvml)
