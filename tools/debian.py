"""Fetches packages of Debian and unpacks them into a folder; nothing is installed, and root is not needed.

Used by tools/toolbox.py for programs that come neither as source nor as Python packages, and for the root file system
of the images that real Pods run. The package list is a private one, so a machine whose own list is missing or old works
too. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


class NotAvailable(Exception):
    """The packages cannot be had; the text says why."""


def unpack_packages(
    packages: Sequence[str], folder: Path, *, dependencies: bool = False, missing: bool = False, listed: bool = False
) -> None:
    """`dependencies`: with everything that the packages need, libc included, whatever the machine has. `missing`: with
    what they need and the machine lacks. `listed`: leaves a list of the packages, which is where scanners of images
    look for it."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotAvailable("this is no Debian (apt-get and dpkg-deb are needed)")
    work = folder / ".apt"
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True)
    apt = ["apt-get", "-q", "-o", f"Dir::State::Lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}"]
    apt += ["-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1"]
    if dependencies:
        (work / "status").touch()
        apt += ["-o", f"Dir::State::status={work / 'status'}"]
    if dependencies or missing:
        fetch = ["install", "--yes", "--download-only", "--no-install-recommends", *packages]
    else:
        fetch = ["download", *packages]
    for step in (["update"], fetch):
        done = subprocess.run([*apt, *step], cwd=work, capture_output=True, text=True)
        if done.returncode:
            raise NotAvailable(f"apt-get {' '.join(step[:2])}: {_last_line(done)}")
    for package in sorted(work.rglob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
        if listed:
            _list_package(package, folder)
    shutil.rmtree(work)


def find_library_path(folder: Path) -> str:
    """For LD_LIBRARY_PATH: where the unpacked packages have their libraries."""
    return os.pathsep.join(sorted({str(path.parent) for path in (folder / "usr" / "lib").glob("*-linux-*/**/*.so*")}))


def _list_package(package: Path, folder: Path) -> None:
    fields = subprocess.run(["dpkg-deb", "-f", str(package)], capture_output=True, text=True, check=True).stdout
    entry = folder / "var" / "lib" / "dpkg" / "status.d" / package.name.partition("_")[0]
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(fields)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit {done.returncode}"
