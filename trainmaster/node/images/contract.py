"""What stands in for an image: a Python environment, with what an image would say about entry point and variables.

`prefix` is never written to by a Pod. `layer` is a thin environment over it that Pods share and start with; a Pod that
installs packages gets one of its own (`layer_hook`). All paths are those of the machine, also inside a sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
