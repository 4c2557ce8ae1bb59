"""What real Pods and their node are made of, beside what is built with Go: packages of Debian, unpacked in the cache.

`NODE_ROOT` has runc, the CNI plugins, nft and a static busybox. `IMAGE_ROOT` is the root file system of the image that
we ship: Debian's Python with the packages that Trainmaster needs (not Trainmaster itself, which changes with every
commit), the authorities that TLS trusts, and busybox for everything else. It has no compiler, no package manager and no
caches; modules are compiled, because nothing can be written there. tools/image.py makes images of it. Standard library
only.
"""

from __future__ import annotations

import os
import shutil
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
IMAGE_FILES = ("base-files", "ca-certificates")
"""Packages that are wanted without what they depend on: which Debian it is, and whom TLS trusts."""
_USELESS = (
    *(f"usr/share/{name}" for name in ("bash-completion", "bug", "doc", "info", "lintian", "locale", "man")),
    *(f"usr/bin/{name}" for name in ("dpkg*", "update-alternatives", "py3*", "pydoc*", "pygettext*")),
)
"""Documents, and the package manager with its helpers."""
_AUTHORITIES = "usr/share/ca-certificates"
NODE_LAYOUT, IMAGE_LAYOUT = "1", "2"
"""Go up when the roots are made in another way."""
_USERS = "root:x:0:0::/root:/bin/sh\nnonroot:x:65532:65532::/tmp:/bin/sh\n"
_GROUPS = "root:x:0:\nnonroot:x:65532:\n"


def list_ingredients(name: str) -> list[str]:
    """All that decides what is in it; Debian's security updates come with the next change of it."""
    if name == NODE_ROOT:
        return [NODE_LAYOUT, *NODE_PACKAGES]
    return [IMAGE_LAYOUT, *IMAGE_PACKAGES, *IMAGE_FILES, *_read_requirements()]


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
    unpack_packages(IMAGE_FILES, root, listed=True)
    unpack_packages(IMAGE_PACKAGES, root, dependencies=True, listed=True)
    _install_requirements(root)
    _trust_authorities(root)
    for path in (path for pattern in _USELESS for path in root.glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    add_applets(root)
    _compile(root)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text(_USERS)
    (root / "etc" / "group").write_text(_GROUPS)
    with tarfile.open(folder / ARCHIVE, "w") as archive:
        for entry in sorted(root.iterdir()):
            archive.add(entry, entry.name, filter=make_neutral)
    subprocess.run(["rm", "-rf", str(root)], check=True)


def _trust_authorities(root: Path) -> None:
    """What `update-ca-certificates` does after an installation."""
    found = sorted((root / _AUTHORITIES).rglob("*.crt"))
    bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(path.read_bytes().rstrip() + b"\n" for path in found))
    shutil.rmtree(root / _AUTHORITIES)


def _compile(root: Path) -> None:
    """With the Python of the root, which runs on any machine together with the loader and the libraries beside it."""
    (loader,) = (path for path in root.glob("lib*/ld-linux-*.so.*"))
    libraries = [path for folder in ("lib", "usr/lib") for path in (root / folder).glob("*-linux-gnu")]
    python = root / "usr" / "bin" / "python3"
    command = [loader, "--library-path", ":".join(map(str, libraries)), python.parent / python.readlink()]
    command += ["-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/"]
    # The order of sets is part of what is written.
    environ = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PATH": os.defpath}
    subprocess.run([*map(str, command), str(root / "usr" / "lib")], env=environ, check=True, stdout=subprocess.DEVNULL)


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
    # Programs that start with the path of the Python that ran pip.
    shutil.rmtree(target / "bin", ignore_errors=True)


def _read_requirements() -> list[str]:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(content["project"]["dependencies"])


def make_neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what depends on who made it, and when."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
