"""Makes the virtual environment `.venv` from nothing but a python3; the first step of every `make` target.

Runs under the system's Python, so standard library only. Does nothing when pyproject.toml has not changed since the
last time. `--package-only` leaves out what only tests need; `--tools` also builds the programs of tools/toolbox.py (the
real control plane, kubectl). What is missing and cannot be had ends with one sentence that says what to do.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".trainmaster-installed"
PYTHON = VENV / "bin" / "python"
EXTRAS = ("dev", "clients", "browser")
"""The optional dependencies that tests need."""

# Measured: the environment takes 0.4 GB; Go's caches and the built programs take 6 GB the first time, the training
# frameworks as much again.
ENVIRONMENT_GB = 1.0
TOOLS_GB = 16.0


class Stop(Exception):
    """An error message for the user."""


def check_python() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  (whatever python3 is here runs this, before our requirement is checked)
        raise Stop(
            f"Python 3.11 or newer is needed and {sys.executable} is {sys.version.split()[0]}: use `make PYTHON=...`."
        )


def check_disk(path: Path, gigabytes: float, purpose: str) -> None:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(existing).free / 1e9
    if free < gigabytes:
        raise Stop(
            f"{purpose} needs {gigabytes:.0f} GB and {existing} has {free:.1f} GB free: make room and run this again."
        )


def ensure_venv_module() -> None:
    """Debian's python3 lacks venv and pip: installs the package as root, otherwise asks the user to do it."""
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Stop(
            "This python3 cannot make virtual environments: run `apt-get install python3-venv` as root, then again."
        )
    print("installing python3-venv (python3 cannot make virtual environments without it)", flush=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "-y", "--no-install-recommends", "python3-venv"]):
        done = subprocess.run(["apt-get", "-q", *step], env=environ, capture_output=True, text=True)
        if done.returncode:
            raise Stop(f"apt-get {step[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")


def wanted_stamp(extras: Sequence[str] = EXTRAS) -> str:
    """A stamp of the dependencies, the Python version and the path; the environment is current while it is the same."""
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    digest.update(f"{sys.version_info[:2]} {VENV} {','.join(extras)}".encode())
    return digest.hexdigest()


def ensure_environment(extras: Sequence[str] = EXTRAS) -> None:
    enough = {wanted_stamp(extras), wanted_stamp(EXTRAS)}
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() in enough:
        return
    check_disk(ROOT, ENVIRONMENT_GB, "The Python environment")
    began = time.monotonic()
    if not PYTHON.exists():
        ensure_venv_module()
        print(f"making {VENV.name} with Python {sys.version.split()[0]}", flush=True)
        run([sys.executable, "-m", "venv", "--clear", str(VENV)], "Making the virtual environment")
    print(f"installing Trainmaster{' and what its tests need' if extras else ''}", flush=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--editable", f".[{','.join(extras)}]" if extras else "."], "Installing the Python packages")
    STAMP.write_text(wanted_stamp(extras))
    print(f"environment ready in {time.monotonic() - began:.0f} s", flush=True)


def compile_sources() -> None:
    """Start-up is measured in milliseconds, and compiling 200 modules takes 300 of them; some environments forbid
    Python to keep the result when it imports (PYTHONDONTWRITEBYTECODE), so it is made here. Quick when up to date."""
    subprocess.run([str(PYTHON), "-m", "compileall", "-q", "trainmaster"], cwd=ROOT)


def run(command: list[str], what: str) -> None:
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Stop(f"{what} failed: {lines[-1] if lines else f'exit {done.returncode}'}")


def ensure_tools() -> None:
    """Tests that need a tool which cannot be had are skipped and say so; so this never stops the run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainmaster"
    if not (cache / "kube-apiserver").exists():
        check_disk(cache, TOOLS_GB, "Building the real control plane for the tests (once)")
    subprocess.run([str(PYTHON), "tools/toolbox.py", "ensure"], cwd=ROOT)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the virtual environment, and with --tools the test programs.")
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--package-only", action="store_true", help="without the packages that only tests need")
    level.add_argument("--tools", action="store_true", help="also build what the tests compare us with")
    options = parser.parse_args()
    try:
        check_python()
        ensure_environment(() if options.package_only else EXTRAS)
        compile_sources()
        if options.tools:
            ensure_tools()
    except Stop as stop:
        print(stop, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
