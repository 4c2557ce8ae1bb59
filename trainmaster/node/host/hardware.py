"""Reads the machine's hardware and health from the kernel, for the Node object.

CPU and memory are what this process may use: inside a container its limits, not the host's. Reading takes microseconds
and never blocks; tests inject other values.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 2**60


@dataclass(frozen=True, slots=True)
class Hardware:
    """Does not change while the process lives."""

    architecture: str
    system: str
    kernel: str
    image: str
    boot_id: str
    machine_id: str
    cpus_milli: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """Changes over time."""

    disk_bytes: int
    disk_free_bytes: int
    memory_free_bytes: int
    processes: int
    processes_most: int
    disk_path: str = "the home"


def read_hardware() -> Hardware:
    cores = len(os.sched_getaffinity(0)) * 1000
    return Hardware(
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        system=platform.system().lower(),
        kernel=platform.release(),
        image=_find_image(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        machine_id=_read("/etc/machine-id"),
        cpus_milli=min(cores, _read_cpu_limit()),
        memory_bytes=measure_memory(),
    )


def measure_memory() -> int:
    """Bytes that this machine, or the container around us, has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, _read_number(_GROUPS / "memory.max", _UNLIMITED))


def read_health(home: Path) -> NodeHealth:
    disk = os.statvfs(home)
    return NodeHealth(
        disk_bytes=disk.f_blocks * disk.f_frsize,
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
        memory_free_bytes=read_free_memory(),
        processes=_count_processes(),
        processes_most=_read_number(Path("/proc/sys/kernel/pid_max"), _UNLIMITED),
        disk_path=str(home),
    )


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _read_number(path: Path, default: int) -> int:
    text = _read(path)
    return int(text) if text.isdigit() else default


def _read_cpu_limit() -> int:
    quota, _, period = _read(_GROUPS / "cpu.max").partition(" ")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return _UNLIMITED
    return max(100, int(quota) * 1000 // int(period))


def read_free_memory() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
            limit = _read_number(_GROUPS / "memory.max", _UNLIMITED)
            used = _read_number(_GROUPS / "memory.current", 0) - _read_reclaimable()
            return free if limit == _UNLIMITED else min(free, max(0, limit - used))
    return _UNLIMITED


def _read_reclaimable() -> int:
    """File cache of the container around us, which the kernel drops when memory is needed."""
    lines = (line.split() for line in _read(_GROUPS / "memory.stat").splitlines())
    return next((int(words[1]) for words in lines if words[0] == "inactive_file"), 0)


def _count_processes() -> int:
    """Counts threads, as the kernel's limit does."""
    parts = _read("/proc/loadavg").split()
    total = parts[3].partition("/")[2] if len(parts) > 3 else ""
    return int(total) if total.isdigit() else 0


def _find_image() -> str:
    for line in _read("/etc/os-release").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip('"')
    return platform.platform(terse=True)
