"""What real Pods and their node are made of, beside what is built with Go: packages of Debian, unpacked in the cache.

`NODE_ROOT` has runc, the CNI plugins, nft and a static busybox. `IMAGE_ROOT` is the root file system of images that
have a Python: Debian's, with the packages that Trainmaster needs (not Trainmaster itself, which changes with every
commit) and busybox for everything else. tests/kube makes images of it. Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tools.debian import NotAvailable, unpack_packages

ROOT = Path(__file__).resolve().parent.parent
NODE_ROOT = "node-root"
IMAGE_ROOT = "image-root"
ARCHIVE = "root.tar"
NODE_PACKAGES = ("runc", "containernetworking-plugins", "nftables", "busybox-static")
IMAGE_PACKAGES = ("python3", "libstdc++6", "busybox-static")
"""Wheels such as torch need the library of C++, and bring none along."""
LAYOUT = "1"
"""Goes up when the roots are made in another way."""
_USERS = "root:x:0:0::/root:/bin/sh\nnonroot:x:65532:65532::/tmp:/bin/sh\n"


def list_ingredients(name: str) -> list[str]:
    """All that decides what is in it; Debian's security updates come with the next change of it."""
    return [LAYOUT, *NODE_PACKAGES] if name == NODE_ROOT else [LAYOUT, *IMAGE_PACKAGES, *_read_requirements()]


def make_node_root(folder: Path) -> None:
    unpack_packages(NODE_PACKAGES, folder, dependencies=True)
    _write_nft(folder)


def _write_nft(folder: Path) -> None:
    """kube-proxy looks for `nft` on its path. With the loader and libraries beside it, it runs on any machine."""
    wrapper = folder / "wrapped" / "nft"
    wrapper.parent.mkdir()
    libraries = "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu"
    loader = f'exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "{libraries}"'
    wrapper.write_text(f'#!/bin/sh\nroot=$(dirname "$0")/..\n{loader} "$root/usr/sbin/nft" "$@"\n')
    wrapper.chmod(0o755)


def make_image_root(folder: Path) -> None:
    """Leaves only the archive: thousands of files more would slow down whoever looks through the cache."""
    root = folder / "root"
    root.mkdir()
    unpack_packages(IMAGE_PACKAGES, root, dependencies=True)
    _install_requirements(root)
    add_applets(root)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text(_USERS)
    with tarfile.open(folder / ARCHIVE, "w") as archive:
        for entry in sorted(root.iterdir()):
            archive.add(entry, entry.name, filter=_owned_by_root)
    subprocess.run(["rm", "-rf", str(root)], check=True)


def add_applets(root: Path) -> None:
    """sh, sleep, tar and the others, as links to busybox, where the packages bring none of their own."""
    listed = subprocess.run([root / "bin" / "busybox", "--list"], capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        link = root / "bin" / name
        if not link.is_symlink() and not link.exists():
            link.symlink_to("busybox")


def _install_requirements(root: Path) -> None:
    """Wheels for Debian's Python, whichever Python runs this."""
    version = (root / "usr" / "bin" / "python3").readlink().name.removeprefix("python")
    target = root / "usr" / "lib" / "python3" / "dist-packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    pip += ["--no-warn-conflicts", "--root-user-action=ignore", "--python-version", version]
    pip += ["--only-binary", ":all:", "--target", str(target)]
    done = subprocess.run([*pip, *_read_requirements()], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NotAvailable(f"packages for Python {version}: {lines[-1] if lines else f'exit {done.returncode}'}")


def _read_requirements() -> list[str]:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(content["project"]["dependencies"])


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
