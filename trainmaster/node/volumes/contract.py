"""Volumes as the rest of the node sees them: a directory (or file) of this machine with some properties.

Each kind's module creates one; `launch.mounts` binds it to the paths that containers request. A volume whose content
comes from the API (`live`) is updated when that changes.
"""

from __future__ import annotations

from dataclasses import dataclass


class VolumeError(Exception):
    """The volume cannot be created now; the message follows the kubelet's. A retry may succeed."""


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
    """Size limit in bytes; 0 is no limit."""
    scratch: bool = False
    """Removed with the Pod."""
    note: str = ""
    """What was approximated."""
    layer: str = ""
    """Directory for writes: the source itself is shared and never changes."""
    code: str = ""
    """The digest of a code volume."""
