"""What stands in for an image: a Python environment, with what an image would say about entry point and variables.

`prefix` is shared and never written to by a Pod. `layer` is the Pod's own thin environment over it, where `pip
install` inside a job goes. Both are host paths; `launch.containers` says how the program sees them.
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
    """Directories with the environment's programs, first one first; the layer's own come before them."""
    layer: str = ""
    command: tuple[str, ...] = ()
    """For containers without a command, as an image's entry point."""
    stand_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs of the image that this machine runs differently, by the name or path that Pods use."""
    variables: Mapping[str, str] = field(default_factory=dict)
    gang_directory: str = ""
    """A directory that all Pods of the gang share, for stand-ins that must find one another."""
    shown: tuple[str, ...] = ()
    """Further files of this machine that the program must see."""
    note: str = ""
    """Which environment it is, for the event."""
