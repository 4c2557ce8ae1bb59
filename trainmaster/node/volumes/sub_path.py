"""subPath: one file or directory inside a volume, made when missing, and never outside of it."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.node.volumes.contract import VolumeError


def make_sub_path(root: str, sub: str) -> str:
    """The path on this machine. Links that lead out of the volume are refused, as the kubelet does."""
    if os.path.isabs(sub) or ".." in Path(sub).parts:
        raise VolumeError(f"subPath {sub!r} must be a relative path without '..'")
    base = os.path.realpath(root)
    target = os.path.realpath(os.path.join(base, sub))
    if target != base and not target.startswith(base + os.sep):
        raise VolumeError(f"failed to prepare subPath: {sub!r} leads out of the volume")
    if not os.path.lexists(target):
        # With the permissions of the volume: whoever may write there may write here.
        mode = os.stat(base).st_mode & 0o777
        missing = [target]
        while not os.path.lexists(os.path.dirname(missing[-1])):
            missing.append(os.path.dirname(missing[-1]))
        for path in reversed(missing):
            os.mkdir(path)
            os.chmod(path, mode)
    return target
