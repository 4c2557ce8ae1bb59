"""Control groups of Pods: limits, usage, OOM kills, and killing all processes of a Pod reliably.

`parse_hierarchies` finds what this process may use: the unified hierarchy (v2) with its controllers, v1 hierarchies, or
both, as on machines where v2 is mounted without controllers (it still has `cgroup.kill`). A Pod has one group per
hierarchy below the node's group, and each container one below that. Between the node's and the Pod's there may be a
group that all Pods of a tenant share, which limits them together. A group is created only where it limits something or
can be used to kill, because every mkdir slows down each start.

The shim itself never joins, because it must survive when the Pod runs out of memory. The shim enforces limits that
cannot be set here (`build.py`), and the node reports which those are.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.shim.protocol import Paths, ResourceLimits

NODE_GROUP = "trainmaster"
_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "cpu", "pids")
_OPTIONAL = (".swap.max", ".memsw.limit_in_bytes", ".tcp.limit_in_bytes")
"""Missing if the kernel does not account for swap or socket memory."""
NO_LIMITS = ResourceLimits()


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Directories in which the node's group can be created."""

    unified: str = ""
    controllers: frozenset[str] = frozenset()
    """Controllers of the unified hierarchy that can be delegated."""
    v1: Mapping[str, str] = field(default_factory=dict)

    @property
    def bases(self) -> list[str]:
        """Each directory once: v1 often mounts several controllers together."""
        return [path for path in dict.fromkeys((self.unified, *self.v1.values())) if path]

    @property
    def mode(self) -> str:
        if self.controllers:
            return "v2"
        if self.v1:
            return "v1"
        return "none"

    @property
    def limits(self) -> frozenset[str]:
        """What can be limited: memory, cpu, pids."""
        return self.controllers | frozenset(self.v1)

    def find(self, controller: str) -> str:
        """The directory of a controller; empty if there is none."""
        return self.unified if controller in self.controllers else self.v1.get(controller, "")


@dataclass(frozen=True, slots=True)
class GroupUsage:
    cpu_ns: int | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """What the kernel has recorded about the memory of a group, in bytes."""

    used: int
    peak: int | None
    """None before Linux 5.19, with version 2."""
    limit: int | None
    """None for no limit."""
    oom_kills: int
    """How many of its processes the kernel has killed because the memory was used up."""


_MEMORY_FILES = (
    ("memory.current", "memory.peak", "memory.max", "memory.events"),
    ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"),
)
_NO_LIMIT = 1 << 60


def parse_hierarchies(mounts: str, own: str) -> Hierarchies:
    """Parses /proc/self/mountinfo and /proc/self/cgroup. Returns only directories in which we may create groups."""
    places = dict(_parse_own(own))
    unified, controllers, v1 = "", frozenset[str](), {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" and not unified:
            unified, controllers = _choose_unified(fields[4], places.get("", "/"))
        elif kind[0] == "cgroup":
            for name in set(kind[2].split(",")) & {*_CONTROLLERS, "cpuacct"}:
                place = _find_writable(fields[4], places.get(name, "/"))
                if place and name not in v1:
                    v1[name] = place
    return Hierarchies(unified, controllers, {k: v for k, v in v1.items() if k not in controllers})


def read_hierarchies() -> Hierarchies:
    with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as own:
        return parse_hierarchies(mounts.read(), own.read())


def _parse_own(text: str) -> list[tuple[str, str]]:
    pairs = []
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        pairs += [(name, path) for name in names.split(",")]
    return pairs


def _choose_unified(mount: str, path: str) -> tuple[str, frozenset[str]]:
    """Our own group if its controllers can be delegated, which requires that it holds no processes, and it holds us.
    Otherwise the topmost one, where this does not matter, or else our own without controllers, where groups can still
    be killed."""
    own = _find_writable(mount, path)
    is_top = not os.path.exists(f"{mount}/cgroup.type") and os.access(mount, os.W_OK)
    for place in dict.fromkeys((own, mount if is_top else "")):
        controllers = frozenset(_read_words(f"{place}/cgroup.controllers") & set(_CONTROLLERS)) if place else None
        if controllers and _can_delegate(place, controllers):
            return place, controllers
    return own, frozenset()


def _can_delegate(path: str, controllers: frozenset[str]) -> bool:
    try:
        _delegate(path, controllers)
    except OSError:
        return False
    return True


def _find_writable(mount: str, path: str) -> str:
    """Our own group's directory below the mount; the mount itself inside a cgroup namespace."""
    place = os.path.normpath(f"{mount}/{path}")
    if not os.path.isdir(place):
        place = mount
    return os.path.realpath(place) if os.access(place, os.W_OK) else ""


def _read_words(path: str) -> set[str]:
    try:
        with open(path) as stream:
            return set(stream.read().split())
    except OSError:
        return set()


def _write(path: str, value: str | int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, str(value).encode())
    finally:
        os.close(handle)


def _make(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)


class PodGroup:
    """The groups of one Pod. All methods are idempotent, so that clean-up after a crash can use them too."""

    def __init__(
        self, hierarchies: Hierarchies, name: str, tenant: str = "", tenant_limits: ResourceLimits = NO_LIMITS
    ) -> None:
        self._hierarchies = hierarchies
        self._name = f"{tenant}/{name}" if tenant else name
        self._tenant = tenant
        self._tenant_limits = tenant_limits

    @property
    def paths(self) -> list[str]:
        """All groups that the Pod may have; those of its containers are below them."""
        return [f"{base}/{NODE_GROUP}/{self._name}" for base in self._hierarchies.bases]

    def build(self, limits: ResourceLimits) -> None:
        needed = {*self._list_needed(limits), *self._list_needed(self._tenant_limits)}
        for base in self._hierarchies.bases:
            if base in needed:
                self._make_pod(base)
        self._limit("", limits)
        self._limit_tenant()

    def _make_pod(self, base: str) -> None:
        node = f"{base}/{NODE_GROUP}"
        pod = f"{node}/{self._name}"
        for _ in range(10):
            try:
                os.mkdir(pod, 0o755)
            except FileNotFoundError:
                _make(node)  # the end of the last Pod may remove it again
                if self._tenant:
                    with contextlib.suppress(FileNotFoundError):
                        _make(f"{node}/{self._tenant}")
                continue
            except FileExistsError:
                return
            break
        if base == self._hierarchies.unified and self._hierarchies.controllers:
            for path in (base, node, *([f"{node}/{self._tenant}"] if self._tenant else ()), pod):
                _delegate(path, self._hierarchies.controllers)

    def _limit_tenant(self) -> None:
        """Called once the Pod's group exists, which keeps the tenant's group in place, and before anything of the Pod
        runs."""
        if not self._tenant:
            return
        values = list_values(self._hierarchies, self._tenant_limits)
        memory = self._hierarchies.v1.get("memory", "")
        if memory and self._tenant_limits.memory:
            values.append((memory, "memory.kmem.tcp.limit_in_bytes", self._tenant_limits.memory // 4))
        # Twice, because memory must never exceed memory with swap in between.
        for last in (False, True):
            values = [entry for entry in values if not self._try_tenant_limit(*entry, last=last)]

    def _try_tenant_limit(self, base: str, name: str, value: str | int, *, last: bool) -> bool:
        try:
            _write(f"{base}/{NODE_GROUP}/{self._tenant}/{name}", value)
        except OSError as error:
            if error.errno == errno.ENOENT and name.endswith(_OPTIONAL):
                return True
            # EBUSY: more is in use than the lowered limit; running processes continue, new allocations fail.
            if error.errno not in (errno.EBUSY, errno.EINVAL) or (last and error.errno != errno.EBUSY):
                raise
            return False
        return True

    def renew(self, container: str) -> bool:
        """Recreates a group before another attempt: a killed group kills every process that is created in it (seen on
        6.18)."""
        if not self._hierarchies.unified:
            return False
        try:
            os.rmdir(self._path(self._hierarchies.unified, container))
        except OSError:
            return False  # it does not exist yet, or is not empty
        return True

    def prepare(self, container: str, limits: ResourceLimits) -> int:
        """In the shim, before the fork: creates the container's groups. Returns a descriptor of the unified one, or
        -1."""
        for base in self._list_needed(limits):
            self._make_pod(base)
            _make(f"{base}/{NODE_GROUP}/{self._name}/{container}")
        self._limit(container, limits)
        if not self._hierarchies.unified:
            return -1
        return os.open(self._path(self._hierarchies.unified, container), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def join(self, container: str, *, unified: bool) -> None:
        """In the child, which has one thread: v1 `tasks` moves it at once, `cgroup.procs` would wait for a lock."""
        if unified and self._hierarchies.unified:
            _write(f"{self._path(self._hierarchies.unified, container)}/cgroup.procs", 0)
        for base in self._hierarchies.bases:
            if base == self._hierarchies.unified:
                continue
            # If only the Pod as a whole is limited, the container belongs to the Pod's own group.
            for path in (self._path(base, container), self._path(base, "")):
                try:
                    _write(f"{path}/tasks", 0)
                except FileNotFoundError:
                    continue
                break

    def kill(self, container: str = "") -> bool:
        """Kills everything in the container's or the Pod's group. False if the kernel has no `cgroup.kill` for us."""
        return bool(self._hierarchies.unified) and kill_group(self._path(self._hierarchies.unified, container))

    def freeze(self, *, frozen: bool) -> bool:
        """Freezes the Pod; frozen processes can still be killed. False if the kernel does not support it."""
        if not self._hierarchies.unified:
            return False
        try:
            _write(f"{self._path(self._hierarchies.unified, '')}/cgroup.freeze", int(frozen))
        except OSError:
            return False
        return True

    def count_oom_kills(self, container: str) -> int:
        base = self._hierarchies.find("memory")
        name = "memory.events" if base == self._hierarchies.unified else "memory.oom_control"
        path = self._path(base, container)
        if not os.path.exists(path):
            path = self._path(base, "")  # if only the Pod or its tenant is limited
        return _read_key(f"{path}/{name}", "oom_kill") if base else 0

    def read_usage(self) -> GroupUsage:
        unified = self._path(self._hierarchies.unified, "")
        if "cpu" in self._hierarchies.controllers:
            cpu: int | None = _read_key(f"{unified}/cpu.stat", "usage_usec") * 1000
        else:
            cpu = _read_number(f"{self._path(self._hierarchies.v1.get('cpuacct', ''), '')}/cpuacct.usage")
        if "memory" in self._hierarchies.controllers:
            memory = _read_number(f"{unified}/memory.current")
        else:
            memory = _read_number(f"{self._path(self._hierarchies.v1.get('memory', ''), '')}/memory.usage_in_bytes")
        return GroupUsage(cpu, memory)

    def remove(self) -> None:
        for path in self.paths:
            remove_group(path)

    def _path(self, base: str, container: str) -> str:
        path = f"{base}/{NODE_GROUP}/{self._name}"
        return f"{path}/{container}" if container else path

    def _list_needed(self, limits: ResourceLimits) -> list[str]:
        """The hierarchies that need a group: those that can kill, and those that limit something."""
        needed = {self._hierarchies.unified}
        wanted = {"memory": limits.memory, "cpu": limits.cpu_millis or limits.cpu_shares_millis, "pids": limits.pids}
        for controller, limit in wanted.items():
            if limit:
                needed.add(self._hierarchies.find(controller))
                if controller == "cpu":
                    needed.add(self._hierarchies.v1.get("cpuacct", ""))
        return [path for path in self._hierarchies.bases if path in needed]

    def _limit(self, container: str, limits: ResourceLimits) -> None:
        for base, name, value in list_values(self._hierarchies, limits):
            path = f"{self._path(base, container)}/{name}"
            try:
                _write(path, value)
            except FileNotFoundError:
                if not name.endswith(_OPTIONAL):
                    raise


def list_values(hierarchies: Hierarchies, limits: ResourceLimits) -> list[tuple[str, str, str | int]]:
    """(hierarchy, file, value) for every limit that can be set."""
    values: list[tuple[str, str, str | int]] = []
    two = hierarchies.controllers
    memory, cpu, pids = (hierarchies.find(name) for name in _CONTROLLERS)
    if memory and limits.memory:
        if "memory" in two:
            values += [(memory, "memory.max", limits.memory), (memory, "memory.swap.max", 0)]
        else:
            # The second is memory plus swap; it must never be less than the first.
            values.append((memory, "memory.limit_in_bytes", limits.memory))
            values.append((memory, "memory.memsw.limit_in_bytes", limits.memory))
    if cpu and limits.cpu_millis:
        quota = max(1000, limits.cpu_millis * _PERIOD_US // 1000)
        if "cpu" in two:
            values.append((cpu, "cpu.max", f"{quota} {_PERIOD_US}"))
        else:
            values += [(cpu, "cpu.cfs_period_us", _PERIOD_US), (cpu, "cpu.cfs_quota_us", quota)]
    if cpu and limits.cpu_shares_millis:
        shares = min(262_144, max(2, limits.cpu_shares_millis * 1024 // 1000))
        if "cpu" in two:
            values.append((cpu, "cpu.weight", 1 + (shares - 2) * 9999 // 262_142))
        else:
            values.append((cpu, "cpu.shares", shares))
    if pids and limits.pids:
        values.append((pids, "pids.max", limits.pids))
    return values


def _delegate(path: str, controllers: frozenset[str]) -> None:
    """Enables the controllers for groups below `path`. The kernel refuses this while it contains processes, except at
    the top."""
    missing = controllers - _read_words(f"{path}/cgroup.subtree_control")
    if missing:
        _write(f"{path}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def clean_up(paths: Paths) -> None:
    """After a shim died and its processes were killed: removes what the kernel did not remove by itself."""
    try:
        with open(paths.sandbox, "rb") as stream:
            groups = json.load(stream)["groups"]
    except (OSError, ValueError):
        return  # nothing was created
    for path in groups:
        kill_group(path)
    for path in groups:
        remove_group(path)
    with contextlib.suppress(FileNotFoundError):  # the zygote and the control plane may both clean up
        os.unlink(paths.sandbox)


def read_memory(paths: Paths, container: str) -> MemoryRecord | None:
    """Of a container, or of its Pod if only that is limited; None if no group accounts for memory. Reads a few small
    files, which are there until the Pod's sandbox is closed."""
    try:
        with open(paths.sandbox, "rb") as stream:
            groups = json.load(stream)["groups"]
    except (OSError, ValueError):
        return None  # nothing was created
    for pod in groups:
        for folder in (f"{pod}/{container}", pod):
            for used, peak, limit, events in _MEMORY_FILES:
                found = _read_number(f"{folder}/{used}")
                if found is not None:
                    limits = [_read_number(f"{place}/{limit}") for place in (folder, pod)]
                    known = [one for one in limits if one is not None and one < _NO_LIMIT]
                    kills = _read_key(f"{folder}/{events}", "oom_kill")
                    return MemoryRecord(found, _read_number(f"{folder}/{peak}"), min(known, default=None), kills)
    return None


def remove_group(path: str) -> None:
    """Removes a Pod's group and those below it, once they contain no processes."""
    if os.path.isdir(path):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
        _remove(path)
        parent = os.path.dirname(path)
        with contextlib.suppress(OSError):  # the tenant's and the node's group, if this was the last Pod
            while os.path.basename(parent) != NODE_GROUP:
                os.rmdir(parent)
                parent = os.path.dirname(parent)
            os.rmdir(parent)


def kill_group(path: str) -> bool:
    try:
        _write(f"{path}/cgroup.kill", 1)
    except OSError:
        return False
    return True


def _remove(path: str) -> None:
    """Retries briefly: a killed process leaves its group with a delay."""
    for pause in (0.001, 0.005, 0.02, 0.1, 0.5, 0):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or not pause:
                raise
            time.sleep(pause)
        else:
            return


def _read_number(path: str) -> int | None:
    try:
        with open(path) as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return None


def _read_key(path: str, key: str) -> int:
    try:
        with open(path) as stream:
            lines: Sequence[str] = stream.read().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == key), 0)
