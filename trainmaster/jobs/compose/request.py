"""The parameters of a new job, read from a command line or a REST request. Pure data.

The reader has validated it in the caller's own terms. `trainjob` compiles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.api.meta import Fields, Object

HOST, CLAIM, SECRET = "host", "claim", "secret"


@dataclass(frozen=True, slots=True)
class RequestedMount:
    kind: str
    """host, claim or secret."""
    source: str
    """A path of the machine, or a name."""
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class SecretVariable:
    secret: str
    key: str
    variable: str


@dataclass(frozen=True, slots=True)
class MountedCode:
    """The volume that contains the code: a bundle of the home, a ConfigMap, or an empty one that the command fills from
    a ConfigMap (`carried`)."""

    volume: Fields
    """Including its name."""
    path: str
    replaces: str = ""
    """The ConfigMap that the code replaces, if a template refers to it."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations for the job that say where the code comes from."""
    config_map: Object | None = None
    """With the packed code: created before the job, which unpacks it and then owns it."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    name: str
    namespace: str = "default"
    command: tuple[str, ...] = ()
    """The command on every node, including the launcher; () for the runtime's."""
    nodes: int = 1
    processes: str = ""
    """Per node: a number, auto, cpu or gpu; "" for the runtime's."""
    max_restarts: int | None = None
    """None for the runtime's."""
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[RequestedMount, ...] = ()
    secret_variables: tuple[SecretVariable, ...] = ()
    secrets: tuple[str, ...] = ()
    """Secrets whose keys all become variables."""
    resources: Mapping[str, str | int] = field(default_factory=dict)
    """Per node."""
    overcommits: bool = False
    """Whether the CPUs are only a limit, and none are reserved."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    code: MountedCode | None = None
    ttl_seconds: int | None = None
    deadline_seconds: int | None = None
    is_suspended: bool = False
    stdin: bool = False
    """Whether a client will attach to the program and write to it."""
    tty: bool = False
    """Whether the program has a terminal."""
