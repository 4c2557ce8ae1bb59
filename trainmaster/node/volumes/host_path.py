"""hostPath: a path of this machine, checked against its type as the kubelet does. A setting can forbid it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_text
from trainmaster.node.volumes.contract import Volume, VolumeError

_CHECKS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def make(name: str, source: Fields, *, allowed: bool) -> Volume:
    path, kind = source["path"], read_text(source, "type")
    if not allowed:
        raise VolumeError(f"hostPath {path} is not allowed by this installation (setting node.host_paths)")
    if kind == "DirectoryOrCreate":
        os.makedirs(path, mode=0o755, exist_ok=True)
        kind = "Directory"
    if kind == "FileOrCreate":
        if not os.path.lexists(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        kind = "File"
    if kind:
        _check(path, kind)
    elif not os.path.exists(path):
        # Without a type nothing is checked, and container runtimes create a missing directory.
        os.makedirs(path, mode=0o755, exist_ok=True)
    return Volume(name, path)


def _check(path: str, kind: str) -> None:
    fits, words = _CHECKS[kind]
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise VolumeError(f"hostPath type check failed: {path} is not {words}") from None
    if not fits(mode):
        raise VolumeError(f"hostPath type check failed: {path} is not {words}")
