"""Debian's Chromium and what the tests of the dashboard need beside it, unpacked into the cache; nothing is installed.

An installed Chromium is used if there is one. Otherwise the package is unpacked with the libraries that this machine
lacks, and fonts with Hangul, and the program is started with its libraries named. `axe-core`, which finds mistakes of
accessibility, comes from npm. Used by tools/toolbox.py (makes) and tests/browser (finds).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.cache import Cache, content_hash
from tools.debian import find_library_path, unpack_packages

CHROMIUM = "chromium"
PACKAGES = ("chromium", "fonts-dejavu-core", "fonts-noto-cjk")
AXE = "axe-core@4.14.1"
_BROWSER_KEY = content_hash([*PACKAGES, "1"])
_AXE_KEY = content_hash([AXE])


class NotFetched(Exception):
    """The package cannot be had; the text says why."""


@dataclass(frozen=True)
class Browser:
    program: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    """What the program needs besides, to find its libraries and fonts."""


def find_browser(cache: Cache) -> Browser | None:
    folder = cache.find(CHROMIUM, _BROWSER_KEY)
    if folder is not None:
        return _read_folder(folder)
    installed = shutil.which("chromium")
    return Browser(Path(installed)) if installed else None


def ensure_browser(cache: Cache, say: Callable[[str], None]) -> Browser:
    def make(folder: Path) -> None:
        say("fetching Debian's chromium, 180 MB (once)")
        unpack_packages(PACKAGES, folder, missing=True)

    return find_browser(cache) or _read_folder(cache.ensure(CHROMIUM, _BROWSER_KEY, make))


def _read_folder(folder: Path) -> Browser:
    environ = {"LD_LIBRARY_PATH": find_library_path(folder), "XDG_DATA_HOME": str(folder / "usr" / "share")}
    # The package's own `chromium` is a script that expects to be installed.
    return Browser(folder / "usr" / "lib" / "chromium" / "chromium", environ)


def find_axe(cache: Cache) -> Path | None:
    """The script that a page is checked with."""
    folder = cache.find("axe-core", _AXE_KEY)
    return None if folder is None else _get_script(folder)


def ensure_axe(cache: Cache) -> Path:
    def make(folder: Path) -> None:
        install_from_npm([AXE], folder)

    return _get_script(cache.ensure("axe-core", _AXE_KEY, make))


def _get_script(folder: Path) -> Path:
    return folder / "node_modules" / "axe-core" / "axe.min.js"


def install_from_npm(packages: list[str], folder: Path) -> None:
    """Installs packages into a folder, in exactly the versions they name, and runs nothing of theirs."""
    if not shutil.which("npm"):
        raise NotFetched("npm is not here")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]
    done = subprocess.run([*command, "--prefix", str(folder), *packages], capture_output=True, text=True)
    if done.returncode:
        raise NotFetched(f"npm cannot install {packages[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
