"""What stands in for an image: a Python environment, with what an image would say about entry point and variables.

`prefix` is never written to by a Pod. `layer` is a thin environment over it that Pods share and start with; a Pod that
installs packages gets one of its own (`layer_hook`). All paths are those of the machine, also inside a sandbox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.jobs.models.pods import Pod
from trainmaster.shim.protocol import Mount


class ImageError(Exception):
    """No environment for this image; the message says what to do. Trying again may help."""


@dataclass(frozen=True, slots=True)
class Environment:
    prefix: str
    programs: tuple[str, ...] = ()
    """Directories with the environment's programs, first one first; what the Pod installs comes before them."""
    layer: str = ""
    packages: tuple[str, ...] = ()
    """Directories of the machine that hold its packages."""
    made: bool = False
    """It was made by installing packages: what is in it may be used with the Pod's rights, and no others."""
    command: tuple[str, ...] = ()
    """For containers without a command, as an image's entry point."""
    stand_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs of the image that this machine runs differently, by the name or path that Pods use."""
    variables: Mapping[str, str] = field(default_factory=dict)
    gang_directory: str = ""
    """A directory that all Pods of the gang share, for stand-ins that must find one another."""
    home: str = ""
    """Where programs believe the home of the image's user to be: the Pod's working directory is seen there too."""
    shown: tuple[str, ...] = ()
    """Further files of this machine that the program must see."""
    note: str = ""
    """Which environment it is, for the event."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A program of ours that runs in a Pod's place, before the Pod does."""

    name: str
    """Of which there is one at a time."""
    container: str
    """Of the Pod: whose user it has."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: str
    mounts: tuple[Mount, ...]
    seconds: float
    hide: tuple[str, ...] = ()
    """Directories of the machine that it must not see, besides those that no Pod sees."""
    egress: bool = False
    """Whether it may have the Pod's way out."""


@dataclass(frozen=True, slots=True)
class ErrandReport:
    code: int
    words: str = ""
    """Its last ones, where it failed."""


Check = Callable[[], Awaitable[str]]
"""Why an errand must be ended; "" while it may go on."""


class Errands(Protocol):
    """Runs programs with the rights of a Pod: its user, its sandbox, its limits."""

    async def run(self, pod: Pod, errand: Errand, check: Check) -> ErrandReport: ...
