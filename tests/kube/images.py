"""The images of a real cluster, as archives that `ctr images import` takes; nothing is pulled.

`localhost/busybox:1` has sh and small tools. `localhost/trainmaster:1` is the image that we ship, of the checkout as it
is now (tools/image.py): for the operator, and for training Pods that report progress. Pods take them with
`imagePullPolicy: Never` or `IfNotPresent`.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.house.tree import ROOT
from tools.image import Image, build_image
from tools.toolbox import Toolbox

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
TRAINMASTER = "localhost/trainmaster:1"


def build_busybox_layer(busybox: Path) -> bytes:
    """A root of one static program under all its names."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for folder, mode in (("tmp", 0o1777), ("etc", 0o755), ("root", 0o755)):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, mode
            archive.addfile(info)
        for name in listed:
            if name != "busybox":
                info = tarfile.TarInfo(f"bin/{name}")
                info.type, info.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(info)
    return buffer.getvalue()


def build_trainmaster_image(toolbox: Toolbox) -> Image:
    return build_image(toolbox, [ROOT / "trainmaster"], TRAINMASTER)
