"""What replaces an image: a Python environment, with the entry point and variables of the image.

A Pod never writes to `prefix`. `layer` is a thin environment over it that Pods share and start with; a Pod that
installs packages gets its own (`layer_hook`). All paths are those of the machine, also inside a sandbox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.jobs.models.pods import Pod
from trainmaster.shim.protocol import Mount


class ImageError(Exception):
    """There is no environment for this image; the message says what to do."""

    def __init__(self, message: str, *, lasts: bool = False) -> None:
        """`lasts`: every other try would fail too, so the Pod ends instead of waiting."""
        super().__init__(message)
        self.lasts = lasts


@dataclass(frozen=True, slots=True)
class Environment:
    prefix: str
    programs: tuple[str, ...] = ()
    """Directories with the environment's programs, in order of precedence; what the Pod installs precedes them."""
    layer: str = ""
    packages: tuple[str, ...] = ()
    """Directories of the machine that contain its packages."""
    made: bool = False
    """It was created by installing packages: its content may be used only with the Pod's rights."""
    command: tuple[str, ...] = ()
    """For containers without a command, like an image's entry point."""
    default_args: tuple[str, ...] = ()
    """The command line of containers that have neither command nor args, if there is no entry point, like an image's
    CMD. Args without a command are then a command line too."""
    stand_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs of the image that this machine replaces, by the name or path that Pods use."""
    variables: Mapping[str, str] = field(default_factory=dict)
    gang_directory: str = ""
    """A directory that all Pods of the gang share, used by replacement programs to find each other."""
    gang_read_only: bool = False
    home: str = ""
    """The home directory of the image's user: the Pod's working directory is also visible there."""
    shown: tuple[str, ...] = ()
    """Additional files of this machine that the program must see."""
    note: str = ""
    """Describes the environment, for the event."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A helper program of ours that runs on behalf of a Pod, before the Pod starts."""

    name: str
    """Only one errand with this name runs at a time."""
    container: str
    """The container of the Pod whose user it runs as."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: str
    mounts: tuple[Mount, ...]
    seconds: float
    hide: tuple[str, ...] = ()
    """Directories of the machine to hide, in addition to those hidden from all Pods."""
    egress: bool = False
    """Whether it may use the Pod's outgoing connections."""


@dataclass(frozen=True, slots=True)
class ErrandReport:
    code: int
    output: str = ""
    """The end of its output if it failed."""


Check = Callable[[], Awaitable[str]]
"""Why an errand must be stopped; "" while it may continue."""


class Errands(Protocol):
    """Runs programs with the rights of a Pod: its user, its sandbox, its limits."""

    async def run(self, pod: Pod, errand: Errand, check: Check) -> ErrandReport: ...
