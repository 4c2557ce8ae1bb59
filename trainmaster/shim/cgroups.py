"""Control groups of Pods: limits, usage, out-of-memory kills, and the one way to kill a tree that nobody escapes.

`find_hierarchies` says what this process may use: the unified hierarchy (v2) with its controllers, v1 hierarchies, or a
mixture, as on machines where v2 is mounted without controllers (then it still has `cgroup.kill`). A Pod has one group
per hierarchy below the node's group, and each container one below that. A group is made only where it limits
something, or where it lets us kill: every mkdir costs time at each start.

The shim itself never joins: it must survive the Pod's running out of memory. What cannot be limited here is watched by
the shim (`sandbox.py`), and the node says which.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.shim.protocol import Limits

NODE_GROUP = "trainmaster"
_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Directories in which the node's group can be made."""

    unified: str = ""
    controllers: frozenset[str] = frozenset()
    """Those of the unified hierarchy that can be handed down."""
    v1: Mapping[str, str] = field(default_factory=dict)

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
        """Where the controller is; empty when it is nowhere."""
        return self.unified if controller in self.controllers else self.v1.get(controller, "")


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_ns: int | None
    memory: int | None


def find_hierarchies(mounts: str, own: str) -> Hierarchies:
    """From the text of /proc/self/mountinfo and /proc/self/cgroup. Only directories in which we may make groups."""
    places = dict(_parse_own(own))
    unified, v1 = "", {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" and not unified:
            unified = _find_writable(fields[4], places.get("", "/"))
        elif kind[0] == "cgroup":
            for name in set(kind[2].split(",")) & {*_CONTROLLERS, "cpuacct"}:
                place = _find_writable(fields[4], places.get(name, "/"))
                if place and name not in v1:
                    v1[name] = place
    controllers = _read_words(f"{unified}/cgroup.controllers") & set(_CONTROLLERS) if unified else set()
    return Hierarchies(unified, frozenset(controllers), {k: v for k, v in v1.items() if k not in controllers})


def read_hierarchies() -> Hierarchies:
    with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as own:
        return find_hierarchies(mounts.read(), own.read())


def _parse_own(text: str) -> list[tuple[str, str]]:
    pairs = []
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        pairs += [(name, path) for name in names.split(",")]
    return pairs


def _find_writable(mount: str, path: str) -> str:
    """Our own group's directory below the mount; the mount itself inside a cgroup namespace."""
    place = os.path.normpath(f"{mount}/{path}")
    if not os.path.isdir(place):
        place = mount
    return place if os.access(place, os.W_OK) else ""


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
    """The groups of one Pod. Everything here is idempotent, so that a sweep after a crash can use it too."""

    def __init__(self, hierarchies: Hierarchies, name: str) -> None:
        self._hierarchies = hierarchies
        self._name = name
        self._members: dict[str, list[str]] = {}

    def build(self, limits: Limits) -> None:
        for base in self._bases(limits):
            _make(f"{base}/{NODE_GROUP}")
            if base == self._hierarchies.unified and self._hierarchies.controllers:
                _hand_down(base, self._hierarchies.controllers)
                _hand_down(f"{base}/{NODE_GROUP}", self._hierarchies.controllers)
            _make(f"{base}/{NODE_GROUP}/{self._name}")
        self._limit("", limits)

    def prepare(self, container: str, limits: Limits) -> None:
        """In the shim, before the fork: the container's groups."""
        joined = []
        for base in self._bases(limits):
            pod = f"{base}/{NODE_GROUP}/{self._name}"
            if not os.path.isdir(pod):
                _make(f"{base}/{NODE_GROUP}")
                _make(pod)
            if base == self._hierarchies.unified and self._hierarchies.controllers:
                _hand_down(pod, self._hierarchies.controllers)
            _make(f"{pod}/{container}")
            joined.append(f"{pod}/{container}")
        self._limit(container, limits)
        # Where the Pod as a whole is limited and this container is not, it belongs into the Pod's own group.
        for base in self._list_bases():
            pod = f"{base}/{NODE_GROUP}/{self._name}"
            if f"{pod}/{container}" not in joined and os.path.isdir(pod):
                joined.append(pod)
        self._members[container] = joined

    def join(self, container: str) -> None:
        """In the child: 0 means whoever writes."""
        for path in self._members.get(container, ()):
            _write(f"{path}/cgroup.procs", 0)

    def kill(self, container: str = "") -> bool:
        """Everything in the container's group, or in the Pod's. False where the kernel has no `cgroup.kill` for us."""
        if not self._hierarchies.unified:
            return False
        try:
            _write(f"{self._path(self._hierarchies.unified, container)}/cgroup.kill", 1)
        except OSError:
            return False
        return True

    def count_oom_kills(self, container: str) -> int:
        base = self._hierarchies.find("memory")
        name = "memory.events" if base == self._hierarchies.unified else "memory.oom_control"
        return _read_key(f"{self._path(base, container)}/{name}", "oom_kill") if base else 0

    def read_usage(self) -> Usage:
        unified = self._path(self._hierarchies.unified, "")
        if "cpu" in self._hierarchies.controllers:
            cpu: int | None = _read_key(f"{unified}/cpu.stat", "usage_usec") * 1000
        else:
            cpu = _read_number(f"{self._path(self._hierarchies.v1.get('cpuacct', ''), '')}/cpuacct.usage")
        if "memory" in self._hierarchies.controllers:
            memory = _read_number(f"{unified}/memory.current")
        else:
            memory = _read_number(f"{self._path(self._hierarchies.v1.get('memory', ''), '')}/memory.usage_in_bytes")
        return Usage(cpu, memory)

    def remove(self) -> None:
        """The groups, once no process is in them. Waits briefly: a killed process leaves its group a little later."""
        for base in self._list_bases():
            pod = f"{base}/{NODE_GROUP}/{self._name}"
            if not os.path.isdir(pod):
                continue
            for entry in os.scandir(pod):
                if entry.is_dir(follow_symlinks=False):
                    _remove(entry.path)
            _remove(pod)

    def _path(self, base: str, container: str) -> str:
        path = f"{base}/{NODE_GROUP}/{self._name}"
        return f"{path}/{container}" if container else path

    def _list_bases(self) -> list[str]:
        """Each directory once: v1 often mounts several controllers together, or links them to one place."""
        found = {os.path.realpath(path): path for path in (self._hierarchies.unified, *self._hierarchies.v1.values())}
        return [path for path in found.values() if path]

    def _bases(self, limits: Limits) -> list[str]:
        """Where this needs a group: always where it lets us kill, and where something is limited."""
        needed = [self._hierarchies.unified]
        wanted = {"memory": limits.memory, "cpu": limits.cpu_millis or limits.cpu_shares_millis, "pids": limits.pids}
        for controller, limit in wanted.items():
            if limit:
                needed.append(self._hierarchies.find(controller))
                if controller == "cpu":
                    needed.append(self._hierarchies.v1.get("cpuacct", ""))
        chosen = {os.path.realpath(path) for path in needed if path}
        return [path for path in self._list_bases() if os.path.realpath(path) in chosen]

    def _limit(self, container: str, limits: Limits) -> None:
        for base, name, value in list_values(self._hierarchies, limits):
            path = f"{self._path(base, container)}/{name}"
            try:
                _write(path, value)
            except FileNotFoundError:
                if not name.endswith((".swap.max", ".memsw.limit_in_bytes")):
                    raise


def list_values(hierarchies: Hierarchies, limits: Limits) -> list[tuple[str, str, str | int]]:
    """(hierarchy, file, value) for every limit that can be set here."""
    values: list[tuple[str, str, str | int]] = []
    two = hierarchies.controllers
    memory, cpu, pids = (hierarchies.find(name) for name in _CONTROLLERS)
    if memory and limits.memory:
        names = ("memory.max", "memory.swap.max") if "memory" in two else ("memory.limit_in_bytes", "")
        values.append((memory, names[0], limits.memory))
        if names[1]:
            values.append((memory, names[1], 0))
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


def _hand_down(path: str, controllers: frozenset[str]) -> None:
    """Lets groups below `path` use the controllers. Refused while processes are in it, except in the topmost one."""
    missing = controllers - _read_words(f"{path}/cgroup.subtree_control")
    if missing:
        _write(f"{path}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def list_pods(hierarchies: Hierarchies) -> set[str]:
    """Names of all groups below the node's, for a sweep after a crash."""
    names = set()
    for base in {hierarchies.unified, *hierarchies.v1.values()} - {""}:
        with contextlib.suppress(FileNotFoundError):
            names |= {entry.name for entry in os.scandir(f"{base}/{NODE_GROUP}") if entry.is_dir(follow_symlinks=False)}
    return names


def _remove(path: str) -> None:
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
