"""The Python environment with torch that `make demo` trains in: found, or made once and kept outside the checkout.

Found are, in this order: torch in the checkout's own .venv, the tests' environment with all frameworks
(tools/frameworks.py), an earlier demo's. The last one is made where none is there, with what pip says on the screen.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.cache import Cache, cache_root, content_hash
from tools.frameworks import ENVIRONMENTS, correct_paths
from tools.frameworks import TOOL as FRAMEWORKS
from tools.frameworks import find_environment as find_test_environment

TOOL = "demo"
NEEDED_GB = 8.0
_PINS = tuple(pin for pin in ENVIRONMENTS[FRAMEWORKS].pins if pin.startswith(("torch==", "numpy")))


class NoEnvironment(Exception):
    """Why there is none and what to do; for people."""


def find_environment() -> Path | None:
    """The prefix of an environment with torch; None when one must be made."""
    if importlib.util.find_spec("torch"):
        return Path(sys.prefix)
    return find_test_environment(FRAMEWORKS) or _open_cache().find(TOOL, _get_key())


def make_environment() -> Path:
    """Installs torch where the next demo finds it. NoEnvironment when there is no room or pip fails."""
    cache = _open_cache()
    cache.root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache.root).free / 1e9
    light = "`make demo DEMO=numpy` trains without torch"
    if free < NEEDED_GB:
        raise NoEnvironment(f"torch needs {NEEDED_GB:.0f} GB in {cache.root}, which has {free:.1f} GB free; {light}")
    print(f"Installing torch once: 5 GB on disk, two to ten minutes, kept in {cache.root}; {light}.", flush=True)
    began = time.monotonic()

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
        _run([*pip, *_PINS])
        correct_paths(folder, cache.path(TOOL, _get_key()))

    made = cache.ensure(TOOL, _get_key(), make)
    print(f"torch is ready after {time.monotonic() - began:.0f} s", flush=True)
    return made


def _open_cache() -> Cache:
    return Cache(cache_root())


def _get_key() -> str:
    return content_hash([*_PINS, f"{sys.version_info[:2]}"])


def _run(command: list[str]) -> None:
    code = subprocess.run(command).returncode
    if code:
        raise NoEnvironment(f"`{' '.join(command[1:4])} ...` ended with exit code {code}; what it said stands above")
