"""The contract between the control plane and the shims: files of a Pod directory, specs, messages.

A Pod directory (`Paths`) is the truth about a Pod after any crash:

    pod.json                          SandboxSpec, written by the control plane before anything starts
    shim.json                         Identity of the shim. While it lives it holds a record lock on this file, so that
                                      there is never a second one
    shim.sock                         where the shim answers (SEQPACKET; connect through a directory descriptor)
    run/<container>.<n>.spec.json     ContainerSpec of attempt n: the intent, written before the start
    run/<container>.<n>.started.json  Started: exists if and only if attempt n was ever begun; never begun twice
    run/<container>.<n>.exit.json     Exited: how it ended, written whole and renamed
    run/<container>.<n>.message       what the program left at its termination message path
    logs/<container>/<n>.log          output as CRI lines: `<RFC 3339 nano> <stdout|stderr> <F|P> <text>`
    logs/<container>/<n>.log.1 ...    older pieces after rotation, 1 is the newest of them

The version stands in `pod.json`. A control plane may meet shims of an older version and must speak to them; a field is
only ever added, with a default that means what was meant before.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, TypeVar

VERSION = 2
SUB_PATHS_SINCE = 2
"""Shims of before know no `Mount.sub_path`."""

FULL = "full"
"""Own mount, UTS, IPC, PID and network namespaces, made as root."""
USER = "user"
"""The same under a user namespace, made by an ordinary user."""
PLAIN = "plain"
"""No namespaces: a process group with a subreaper."""

BIND = "bind"
TMPFS = "tmpfs"
OVERLAY = "overlay"
"""A writable layer over `source`, which itself never changes. It belongs to one attempt, or to the Pod (`layer`)."""

OWN_NETWORK = "own"
"""A network namespace of its own with an address on the switch."""
HOST_NETWORK = "host"
"""The machine's network."""


@dataclass(frozen=True, slots=True)
class Mount:
    target: str
    """Absolute path that the program sees."""
    source: str = ""
    """Path on the machine; empty for tmpfs."""
    kind: str = BIND
    read_only: bool = False
    size: int = 0
    """Bytes that a tmpfs may hold; 0 is the kernel's default."""
    layer: str = ""
    """Directory of an overlay's writable part, kept over attempts; empty for one of the attempt's own."""
    sub_path: str = ""
    """What of `source` is shown: a path in it, which the programs of other Pods may be changing right now. It is
    resolved when it is mounted, and never leads out of `source`."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """0 is no limit. What a level cannot enforce is said by the node, not dropped in silence."""

    memory: int = 0
    cpu_millis: int = 0
    cpu_shares_millis: int = 0
    pids: int = 0


@dataclass(frozen=True, slots=True)
class Relay:
    """A listener on a loopback address of the Pod's network, served from the machine's network by the shim's relay."""

    address: str
    port: int
    host: str = ""
    """Where connections are taken; empty for a proxy for outgoing connections (HTTP CONNECT and plain HTTP)."""
    host_port: int = 0
    server_file: str = ""
    """In place of `host`: a JSON file whose `server` is the URL of where connections are taken now."""
    upstream: str = ""
    """For a proxy: the machine's own proxy, `http://[user:password@]host:port`, through which it must go."""
    reach: str = ""
    """For a proxy: how far it leads (`egress`); "" for the owner's jobs."""
    allow: tuple[str, ...] = ()
    """For a proxy that does not lead everywhere: what the owner has opened all the same."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What all containers of a Pod share."""

    uid: str
    name: str
    namespace: str
    hostname: str
    domain: str = ""
    """What follows the hostname in the fully qualified name, without a leading dot."""
    level: str = PLAIN
    network: str = HOST_NETWORK
    address: str = "127.0.0.1"
    prefix: int = 16
    hosts: tuple[tuple[str, ...], ...] = ()
    """Lines of /etc/hosts: an address and its names, the Pod's own line first."""
    shm_bytes: int = 0
    """Size of the private /dev/shm; 0 is half of the Pod's memory limit, or 64 MiB."""
    cgroup: str = ""
    """Name of the Pod's control group below the node's; empty for none."""
    hide: tuple[str, ...] = ()
    """Directories of the machine that are empty for the Pod, but for its own mounts: the server's home."""
    host_writable: bool = False
    """False: the machine's files are read-only, and what the Pod may write are its mounts and private directories."""
    relays: tuple[Relay, ...] = ()
    """Addresses inside the Pod's network that lead out of it."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    version: int = VERSION
    tenant_cgroup: str = ""
    """Name of the group between the node's and the Pod's, which all Pods of a tenant share; empty for none."""
    tenant_limits: ResourceLimits = field(default_factory=ResourceLimits)
    """Of all of them together."""
    segment: str = ""
    """Of the switch: Pods of one segment reach each other and nobody else. "": the one that the owner's Pods share."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One attempt of one container, ready to be executed: nothing in it needs the API any more."""

    name: str
    attempt: int
    argv: tuple[str, ...]
    env: dict[str, str]
    directory: str
    """The working directory as the program sees it."""
    mounts: tuple[Mount, ...] = ()
    run_as_user: int | None = None
    run_as_group: int | None = None
    groups: tuple[int, ...] = ()
    read_only_root: bool = False
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    log_max_bytes: int = 50 << 20
    log_keep: int = 3
    message_path: str = "/dev/termination-log"
    message_from_logs: bool = False
    """Fall back to the last lines of the log when the program failed and left no message."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    devices: tuple[str, ...] = ()
    """Device nodes under /dev beyond the usual ones (GPUs)."""
    new_privileges: bool = False
    seccomp: bool = True
    """Refuse calls that only a runtime or an attacker makes (mounts, namespaces, modules, keyrings)."""
    warm: str = ""
    """Key of the warm zygote whose imports the program may begin with; a shim of another zygote executes it."""
    rlimits: tuple[tuple[int, int], ...] = ()
    """(resource, most), as setrlimit knows them: programs may not raise them, and keep what is less."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Who a process is: a pid alone is used again by the kernel."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/pid/stat."""
    boot_id: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    """As the machine sees it."""
    at: float
    """Wall-clock seconds at which exec had succeeded; 0 when it did not."""
    error: str = ""
    """Why the program could not be started; an `Exited` with code 128 follows."""
    note: str = ""
    """How it was started, where that was asked to be special: warm, or cold and why."""


@dataclass(frozen=True, slots=True)
class Exited:
    code: int
    """128 + signal when a signal ended it, as a shell says it."""
    at: float
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    message: str = ""
    """What the program left as its termination message, or the log's last lines, cut to 4096 bytes."""


_NEWER = frozenset({"layer", "sub_path", "reach", "allow", "segment"})
"""Fields that shims of before cannot read: left out where they say nothing."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))

_Spec = TypeVar("_Spec", SandboxSpec, ContainerSpec, ProcessIdentity, Started, Exited)


class Paths:
    """The names in one Pod directory."""

    __slots__ = ("directory",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    @property
    def pod(self) -> str:
        return f"{self.directory}/pod.json"

    @property
    def identity(self) -> str:
        return f"{self.directory}/shim.json"

    @property
    def lock(self) -> str:
        """A new file for each would cost a Pod's start more than all that is written into it."""
        return self.identity

    @property
    def socket(self) -> str:
        return f"{self.directory}/shim.sock"

    def spec(self, container: str, attempt: int) -> str:
        return f"{self.directory}/run/{container}.{attempt}.spec.json"

    def started(self, container: str, attempt: int) -> str:
        return f"{self.directory}/run/{container}.{attempt}.started.json"

    def exited(self, container: str, attempt: int) -> str:
        return f"{self.directory}/run/{container}.{attempt}.exit.json"

    def message(self, container: str, attempt: int) -> str:
        return f"{self.directory}/run/{container}.{attempt}.message"

    def log(self, container: str, attempt: int) -> str:
        return f"{self.directory}/logs/{container}/{attempt}.log"


def encode(value: SandboxSpec | ContainerSpec | ProcessIdentity | Started | Exited) -> bytes:
    return _ENCODER.encode(describe(value)).encode()


def describe(value: Any) -> dict[str, object]:
    """The fields of a record by name, for JSON. As `asdict` without its copies: a shim does little else."""
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {name: _describe_one(found) for name, found in fields.items() if found not in ("", ()) or name not in _NEWER}


def _describe_one(value: object) -> object:
    if isinstance(value, tuple):
        return [_describe_one(entry) for entry in value]
    return describe(value) if hasattr(value, "__dataclass_fields__") else value


def decode(kind: type[_Spec], content: bytes) -> _Spec:
    """Fields that this version does not know are dropped: they were written by a newer one, with a safe default."""
    raw: dict[str, Any] = json.loads(content)
    known = kind.__dataclass_fields__
    values = {name: _restore(name, value) for name, value in raw.items() if name in known}
    return kind(**values)


def _restore(name: str, value: Any) -> Any:
    if name in ("limits", "tenant_limits"):
        return ResourceLimits(**value)
    if name == "relays":
        return tuple(Relay(**{**entry, "allow": tuple(entry.get("allow") or ())}) for entry in value)
    if name == "mounts":
        return tuple(Mount(**entry) for entry in value)
    if name in ("hosts", "rlimits"):
        return tuple(tuple(line) for line in value)
    return tuple(value) if isinstance(value, list) else value


def write_whole(path: str, content: bytes, mode: int = 0o600) -> None:
    """To a temporary name, then renamed: a reader sees all of it or nothing."""
    temporary = f"{path}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        done = os.write(handle, content)
        while done < len(content):  # a disk that is almost full takes a part, and refuses the next
            done += os.write(handle, content[done:])
    finally:
        os.close(handle)
    os.rename(temporary, path)


def read_whole(path: str) -> bytes:
    """Small files, without the machinery of file objects."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while piece := os.read(handle, 65536):
            content += piece
        return content
    finally:
        os.close(handle)
