"""Debian's nginx, unpacked into the cache; nothing is installed. The tests put it in front of the dashboard.

An installed nginx is used if there is one. Otherwise the package is unpacked with the libraries that this machine
lacks, and the program is started with its libraries named. Used by tools/toolbox.py (makes) and tests/browser (finds).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.cache import Cache, content_hash
from tools.debian import find_library_path, unpack_packages

NGINX = "nginx"
_KEY = content_hash([NGINX, "1"])


@dataclass(frozen=True)
class Nginx:
    program: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    """What the program needs besides, to find its libraries."""


def find_nginx(cache: Cache) -> Nginx | None:
    folder = cache.find(NGINX, _KEY)
    if folder is not None:
        return _read_folder(folder)
    # Often only root has sbin in its PATH.
    installed = shutil.which(NGINX, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    return Nginx(Path(installed)) if installed else None


def ensure_nginx(cache: Cache, say: Callable[[str], None]) -> Nginx:
    def make(folder: Path) -> None:
        say("fetching Debian's nginx")
        unpack_packages([NGINX], folder, missing=True)

    return find_nginx(cache) or _read_folder(cache.ensure(NGINX, _KEY, make))


def _read_folder(folder: Path) -> Nginx:
    return Nginx(folder / "usr" / "sbin" / NGINX, {"LD_LIBRARY_PATH": find_library_path(folder)})
