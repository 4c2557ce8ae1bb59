"""`make image`: the image of Trainmaster, for the operator and the REST API, made without a container engine.

    python tools/image.py WHEEL [--name NAME] [--out DIR]

It writes `trainmaster-VERSION-image.tar`, which `ctr images import`, `docker load` and `podman load` take. The image
has two layers: the root file system of `tools/pod_root.py`, which changes with Debian and our dependencies only, and
the wheel. The same wheel on the same root gives the same bytes. tests/kube makes its images with these functions.
deploy/image/Containerfile is for those who have a container engine and a base image of their own. Standard library
only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.pod_root import ARCHIVE, IMAGE_ROOT, make_neutral  # noqa: E402  (run as a script, the root is not on the path)
from tools.toolbox import Toolbox, Unavailable  # noqa: E402

USER = "65532:65532"
ENTRYPOINT = ("trainmaster",)
ENVIRON = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    # Nothing can be written beside the modules, which are compiled.
    "PYTHONDONTWRITEBYTECODE": "1",
}
PROGRAM = "usr/bin/trainmaster"
_PACKAGES = "usr/lib/python3/dist-packages"
_SCRIPT = """\
#!/usr/bin/python3
from trainmaster.cli.main import entry

entry()
"""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    name: str
    layers: Sequence[Path | bytes]
    """Tar archives of files; a later one hides what an earlier one has under the same path."""
    entrypoint: Sequence[str] = ()
    user: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: {"PATH": ENVIRON["PATH"]})


def write_image(image: Image, target: Path) -> Path:
    """In the format of `docker save`."""
    hashes = [_hash(layer) for layer in image.layers]
    config = json.dumps(
        {
            "architecture": _MACHINES[platform.machine()],
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in image.environ.items()],
                "Entrypoint": list(image.entrypoint),
                "User": image.user,
            },
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
                archive.add(layer, name, filter=make_neutral)
    return target


def build_image(toolbox: Toolbox, folders: Sequence[Path], name: str) -> Image:
    """`folders`: the package `trainmaster`, and what else its wheel has."""
    root = toolbox.find_root(IMAGE_ROOT)
    if root is None:
        raise Unavailable(toolbox.why_missing(IMAGE_ROOT))
    return Image(name, [root / ARCHIVE, build_layer(folders)], ENTRYPOINT, USER, ENVIRON)


def build_layer(folders: Sequence[Path]) -> bytes:
    """The package, compiled, and the program that starts it."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="trainmaster-image-") as name:
        for folder in folders:
            shutil.copytree(folder, Path(name, folder.name), ignore=shutil.ignore_patterns("__pycache__"))
        _compile(Path(name))
        with tarfile.open(fileobj=buffer, mode="w") as layer:
            for entry in sorted(Path(name).iterdir()):
                layer.add(entry, f"{_PACKAGES}/{entry.name}", filter=_make_readable)
            program = tarfile.TarInfo(PROGRAM)
            program.mode, program.size = 0o755, len(_SCRIPT)
            layer.addfile(program, io.BytesIO(_SCRIPT.encode()))
    return buffer.getvalue()


def _compile(folder: Path) -> None:
    """If this Python has another minor version than Debian's, that one compiles at each start, which takes seconds."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    # The order of sets is part of what is written.
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run([*command, "-s", folder, "-p", f"/{_PACKAGES}", folder], env=environ, check=True)


def _make_readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """For every user, whatever the umask was."""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return make_neutral(entry)


def _hash(layer: Path | bytes) -> str:
    if isinstance(layer, bytes):
        return hashlib.sha256(layer).hexdigest()
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def unpack_wheel(wheel: Path, folder: Path) -> list[Path]:
    """Its folders."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return sorted(folder.iterdir())


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the image of a wheel as an archive.")
    parser.add_argument("wheel", type=Path, help="of `make dist`")
    parser.add_argument("--name", default="", help="name of the image (default: localhost/trainmaster:VERSION)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write to (default: dist)")
    options = parser.parse_args()
    version = options.wheel.name.split("-")[1]
    target: Path = options.out / f"trainmaster-{version}-image.tar"
    try:
        toolbox = Toolbox()
        toolbox.ensure_root(IMAGE_ROOT)
        with tempfile.TemporaryDirectory(prefix="trainmaster-wheel-") as name:
            folders = unpack_wheel(options.wheel, Path(name))
            image = build_image(toolbox, folders, options.name or f"localhost/trainmaster:{version}")
            write_image(image, target)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{target}: {target.stat().st_size} bytes, {image.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
