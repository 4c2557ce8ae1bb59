"""What somebody asks for when a job shall run: read from a command line, a request, later a page. Pure data.

Whoever reads it has checked it in the caller's own terms. `trainjob` compiles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.api.meta import Fields

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
    """The code, where a volume has it: a bundle of the home, or a ConfigMap."""

    volume: Fields
    """With its name."""
    path: str
    replaces: str = ""
    """The ConfigMap in whose place it is mounted where a template names it."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What is recorded on the job about where it came from."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    name: str
    namespace: str = "default"
    command: tuple[str, ...] = ()
    """As it runs on every node, launcher included; () leaves it to the runtime."""
    nodes: int = 1
    processes: str = ""
    """Per node: a number, auto, cpu or gpu; "" leaves it to the runtime."""
    max_restarts: int | None = None
    """None leaves it to the runtime."""
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[RequestedMount, ...] = ()
    secret_variables: tuple[SecretVariable, ...] = ()
    secrets: tuple[str, ...] = ()
    """Whole Secrets, whose keys become variables."""
    resources: Mapping[str, str | int] = field(default_factory=dict)
    """Per node."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    code: MountedCode | None = None
    ttl_seconds: int | None = None
    deadline_seconds: int | None = None
    is_suspended: bool = False
