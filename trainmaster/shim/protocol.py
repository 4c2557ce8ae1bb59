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
    sandbox.json                      resources of the sandbox that others may have to find

`pod.json` contains the version. A control plane must support running shims of older versions; fields are only ever
added, with a default that keeps the old meaning.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, TypeVar

VERSION = 2
SUB_PATHS_SINCE = 2
"""Older shims do not support `Mount.sub_path`."""

FULL = "full"
"""Own mount, UTS, IPC, PID and network namespaces, made as root."""
USER = "user"
"""The same under a user namespace, made by an ordinary user."""
PLAIN = "plain"
"""No namespaces: a process group with a subreaper."""

BIND = "bind"
TMPFS = "tmpfs"
OVERLAY = "overlay"
"""A writable layer over `source`, which never changes. It belongs to one attempt, or to the Pod (`layer`)."""

OWN_NETWORK = "own"
"""A network namespace of the Pod's own, with an address on the switch."""
HOST_NETWORK = "host"
"""The machine's network."""
LONGEST_SEGMENT = 11
"""Interface names have at most 15 characters, and a bridge's contains its number."""

ZYGOTE_FOLDER = ".zygote"
"""Inside the directory of all Pods."""
ZYGOTE_SOCKET = "zygote.sock"
HELD = "Held"
"""Kind of the refusal when the Pod already has a running shim."""

PRIVATE = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp")
"""Directories in which a container sees nothing of the machine."""
COPY = "copy"
"""In the directory of a writable layer: a full copy of the source, if an overlay is not possible."""
ENVIRON = {
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "PIP_REQUIRE_VIRTUALENV": "1",
}
"""What every Pod has from the node, and a warm zygote imports with."""


@dataclass(frozen=True, slots=True)
class Mount:
    target: str
    """Absolute path in the container."""
    source: str = ""
    """Path on the machine; empty for tmpfs."""
    kind: str = BIND
    read_only: bool = False
    size: int = 0
    """Size limit of a tmpfs in bytes; 0 is the kernel's default."""
    layer: str = ""
    """Directory of an overlay's writable layer that is kept across attempts; empty for one per attempt."""
    sub_path: str = ""
    """The path inside `source` to mount. Other Pods may be changing it at the same time: it is resolved when mounting
    and never leads out of `source`."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """0 is no limit. The node reports limits that an isolation level cannot enforce."""

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
    """Where connections are forwarded to; empty for a proxy for outgoing connections (HTTP CONNECT and plain HTTP)."""
    host_port: int = 0
    server_file: str = ""
    """Instead of `host`: a JSON file whose `server` is the URL to forward to."""
    upstream: str = ""
    """For a proxy: the machine's own proxy, `http://[user:password@]host:port`, that it must use."""
    reach: str = ""
    """For a proxy: which addresses it may connect to (see `egress`); "" for the owner's jobs."""
    allow: tuple[str, ...] = ()
    """For a restricted proxy: additional destinations that the owner has allowed."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What all containers of a Pod share."""

    uid: str
    name: str
    namespace: str
    hostname: str
    domain: str = ""
    """The domain of the fully qualified name, without a leading dot."""
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
    """Directories of the machine that appear empty in the Pod except for its own mounts, such as the server's home."""
    host_writable: bool = False
    """False: the machine's files are read-only, and the Pod may write only to its mounts and private directories."""
    relays: tuple[Relay, ...] = ()
    """Addresses inside the Pod's network that lead out of it."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    version: int = VERSION
    tenant_cgroup: str = ""
    """Name of the group between the node's and the Pod's, shared by all Pods of a tenant; empty for none."""
    tenant_limits: ResourceLimits = field(default_factory=ResourceLimits)
    """Limits of all Pods of the tenant together."""
    segment: str = ""
    """The segment of the switch: Pods reach only others in the same segment. "": the segment of the owner's Pods."""
    gang_socket: str = ""
    """A path where the shim starts programs for another Pod of the job (`sessions`); empty for none."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One attempt of a container, ready to be executed without any further use of the API."""

    name: str
    attempt: int
    argv: tuple[str, ...]
    env: dict[str, str]
    directory: str
    """The working directory inside the container."""
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
    """Use the last lines of the log if the program failed without a message."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    devices: tuple[str, ...] = ()
    """Device nodes under /dev in addition to the usual ones (GPUs)."""
    new_privileges: bool = False
    seccomp: bool = True
    """Refuse system calls that programs do not need (mounts, namespaces, modules, keyrings)."""
    warm: str = ""
    """Key of the warm zygote whose imports the program may start with; a shim of another zygote executes it instead."""
    rlimits: tuple[tuple[int, int], ...] = ()
    """(resource, maximum) as in setrlimit. Programs cannot raise them; lower existing limits are kept."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process; a pid alone may be reused."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/pid/stat."""
    boot_id: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    """The machine's pid."""
    at: float
    """Wall-clock seconds at which exec succeeded; 0 if it did not."""
    error: str = ""
    """Why the program could not be started; an `Exited` with code 128 follows."""
    note: str = ""
    """How it was started, if a warm start was requested: warm, or cold and why."""


@dataclass(frozen=True, slots=True)
class Exited:
    code: int
    """128 + signal if a signal ended it, as in a shell."""
    at: float
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    message: str = ""
    """The termination message, or the last lines of the log, cut to 4096 bytes."""
    memory: int = 0
    """The largest resident size of one of its processes, in bytes; 0 if unknown."""


_NEWER = frozenset({"layer", "sub_path", "reach", "allow", "segment", "gang_socket"})
"""Fields that older shims cannot read; left out when they have their default."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))

_Spec = TypeVar("_Spec", SandboxSpec, ContainerSpec, ProcessIdentity, Started, Exited)


class Paths:
    """The file names in a Pod directory."""

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
        """The identity file; a separate lock file would noticeably slow down the start of a Pod."""
        return self.identity

    @property
    def socket(self) -> str:
        return f"{self.directory}/shim.sock"

    @property
    def sandbox(self) -> str:
        return f"{self.directory}/sandbox.json"

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
    """The fields of a record by name, for JSON. Like `asdict` but without copies, because a shim does little else."""
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {name: _describe_one(found) for name, found in fields.items() if found not in ("", ()) or name not in _NEWER}


def _describe_one(value: object) -> object:
    if isinstance(value, tuple):
        return [_describe_one(entry) for entry in value]
    return describe(value) if hasattr(value, "__dataclass_fields__") else value


def decode(kind: type[_Spec], content: bytes) -> _Spec:
    """Ignores unknown fields: a newer version wrote them, with a safe default."""
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
    """Writes to a temporary file and renames it, so that readers see all of it or nothing."""
    temporary = f"{path}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        done = os.write(handle, content)
        while done < len(content):  # an almost full disk may accept a part of it
            done += os.write(handle, content[done:])
    finally:
        os.close(handle)
    os.rename(temporary, path)


def read_whole(path: str) -> bytes:
    """For small files; avoids the overhead of file objects."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while piece := os.read(handle, 65536):
            content += piece
        return content
    finally:
        os.close(handle)
