"""subPath: one file or directory inside a volume, created if missing, and never outside of it.

Other Pods may change the volume at any time. So this only creates what is missing, by descriptor, and reports errors
early; the shim resolves the path again in the same way when it mounts it (`shim.sandbox.rootfs`).
"""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.node.volumes.contract import VolumeError
from trainmaster.shim.sandbox import beneath


def make_sub_path(root: str, sub: str) -> None:
    """Links that lead out of the volume are refused, as the kubelet does."""
    if os.path.isabs(sub) or ".." in Path(sub).parts or "\0" in sub:
        raise VolumeError(f"subPath {sub!r} must be a relative path without '..'")
    handle = beneath.open_directory(root)
    try:
        # With the permissions of the volume, so that the same users may write.
        mode = os.fstat(handle).st_mode & 0o777
        os.close(beneath.make_beneath(handle, sub, beneath.MakeOptions(mode)))
    except beneath.PathEscapes:
        raise VolumeError(f"failed to prepare subPath: {sub!r} leads out of the volume") from None
    finally:
        os.close(handle)
