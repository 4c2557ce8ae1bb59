"""Images made of root file systems, as archives that `ctr images import` takes; nothing is pulled.

`localhost/busybox:1` has sh and small tools, `localhost/trainmaster:1` Debian's Python, what Trainmaster needs, and the
checkout's own package: it is the image of the operator and of training Pods that report progress. Pods take them with
`imagePullPolicy: Never` or `IfNotPresent`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house.tree import ROOT
from tools.pod_root import ARCHIVE, IMAGE_ROOT
from tools.toolbox import Toolbox, Unavailable

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
TRAINMASTER = "localhost/trainmaster:1"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = "usr/lib/python3/dist-packages"


@dataclass(frozen=True)
class Image:
    name: str
    layers: Sequence[Path | bytes]
    """Tar archives of files; a later one hides what an earlier one has under the same path."""
    entrypoint: Sequence[str] = ()


def write_image(image: Image, target: Path) -> Path:
    """In the format of `docker save`."""
    hashes = [_hash(layer) for layer in image.layers]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": [_PATH], "Entrypoint": list(image.entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in hashes]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    layer_names = [f"{one}.tar" for one in hashes]
    manifest = [{"Config": config_name, "RepoTags": [image.name], "Layers": layer_names}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        _add(archive, config_name, config)
        for name, layer in zip(layer_names, image.layers, strict=True):
            if isinstance(layer, bytes):
                _add(archive, name, layer)
            else:
                archive.add(layer, name)
    return target


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


def build_package_layer() -> bytes:
    """The package of this checkout as it is now."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(ROOT / "trainmaster", f"{_PACKAGES}/trainmaster", filter=_without_caches)
    return buffer.getvalue()


def build_trainmaster_image(toolbox: Toolbox, name: str = TRAINMASTER) -> Image:
    root = toolbox.find_root(IMAGE_ROOT)
    if root is None:
        raise Unavailable(toolbox.why_missing(IMAGE_ROOT))
    # Named in a way that works before and after an installation: the package lies where Python looks for packages.
    return Image(name, [root / ARCHIVE, build_package_layer()], ("/usr/bin/python3", "-m", "trainmaster.cli"))


def _hash(layer: Path | bytes) -> str:
    if isinstance(layer, bytes):
        return hashlib.sha256(layer).hexdigest()
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if os.path.basename(entry.name) == "__pycache__":
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
