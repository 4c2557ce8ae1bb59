"""What a volume is to the rest of the node: a directory (or file) of this machine with a few properties.

Each kind's module makes one; `launch.mounts` binds it to the paths that containers ask for. A volume whose content
comes from the API (`live`) is written again when that changes.
"""

from __future__ import annotations

from dataclasses import dataclass


class VolumeError(Exception):
    """The volume cannot be made now; the message follows the kubelet's. Trying again may help."""


@dataclass(frozen=True, slots=True)
class Volume:
    name: str
    source: str
    """Path on this machine."""
    read_only: bool = False
    live: bool = False
    """Content from the API: ConfigMaps, Secrets, tokens, fields of the Pod."""
    memory: bool = False
    """An emptyDir of medium Memory."""
    size_limit: int = 0
    """Bytes that it may hold; 0 is no limit."""
    scratch: bool = False
    """Goes with the Pod."""
    note: str = ""
    """What was approximated."""
    layer: str = ""
    """Directory that takes what is written: the source itself is shared and never changes."""
    code: str = ""
    """The digest, for a volume of code."""
