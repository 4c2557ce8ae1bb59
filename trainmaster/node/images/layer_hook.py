"""Copied into shared layers and run by their interpreter at start: gives a Pod its own environment when needed.

A Pod starts with an interpreter that all Pods of an environment share, so that starting it needs no disk space. When
`pip` is run, a thin environment is created at TRAINMASTER_ENV and pip is run by its interpreter instead, so that it
installs, upgrades and uninstalls only there. From then on that interpreter is the first in PATH, and one that is
started by its old path sees the new packages too.

Where TRAINMASTER_IMPORTS names a file, a program writes there, when it ends, which modules of the environment it has
imported, so that the next one can start with them (docs/warm-start.md). Imports nothing of ours; any Python from 3.8 on
may run it.
"""

from __future__ import annotations

import atexit
import os
import site
import sys

VARIABLE = "TRAINMASTER_ENV"
IMPORTS = "TRAINMASTER_IMPORTS"
BELOW = "_below.pth"
NAME = "_trainmaster_layer"
"""The name of the copy; under its own name the module does nothing."""


def get_arguments() -> list[str]:
    """The whole command line; `sys.argv` is not set yet at this point."""
    with open("/proc/self/cmdline", "rb") as stream:
        return [os.fsdecode(part) for part in stream.read().split(b"\0")[:-1]]


def runs_pip(arguments: list[str]) -> bool:
    for index, argument in enumerate(arguments[1:], 1):
        if argument == "-m":
            return arguments[index + 1 : index + 2] == ["pip"]
        if not argument.startswith("-"):
            return False
    return False


def get_packages(prefix: str) -> str:
    return f"{prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def make(target: str) -> None:
    """Creates a thin environment over the one below this layer. Complete once `pyvenv.cfg` exists."""
    packages = get_packages(target)
    os.makedirs(packages, exist_ok=True)
    os.makedirs(f"{target}/bin", exist_ok=True)
    interpreter = os.path.realpath(sys.executable)
    for name in ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        if not os.path.lexists(f"{target}/bin/{name}"):
            os.symlink(interpreter, f"{target}/bin/{name}")
    with open(f"{os.path.dirname(__file__)}/{BELOW}") as stream:
        lines = [line for line in stream if "addsitedir" in line]
    with open(f"{packages}/{BELOW}", "w") as stream:
        stream.writelines(lines)
    with open(f"{target}/pyvenv.cfg.tmp", "w") as stream:
        stream.write(f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n")
    os.rename(f"{target}/pyvenv.cfg.tmp", f"{target}/pyvenv.cfg")


def list_imports() -> list[str]:
    """In the order in which they were imported. Code of the job itself is not among them."""
    places = tuple(f"{place}/" for place in sys.path if place.endswith(("/site-packages", "/dist-packages")))
    found = []
    for name, module in list(sys.modules.items()):
        try:
            spec = module.__spec__
            belongs = spec.name == name and spec.origin.startswith(places)  # type: ignore[union-attr]
        except Exception:  # noqa: BLE001 - anything may be there, also what is no module
            continue
        if belongs and name != NAME:
            found.append(name)
    return found


def write_imports(path: str) -> None:
    """The longest list counts: torchrun's workers import more than torchrun itself."""
    content = "\n".join(list_imports()).encode()
    try:
        if not content or (os.path.exists(path) and os.path.getsize(path) >= len(content)):
            return
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except OSError:
        return  # the next program may tell


def follow_imports() -> None:
    path = os.environ.get(IMPORTS)
    if path:
        atexit.register(write_imports, path)


def begin() -> None:
    follow_imports()
    target = os.environ.get(VARIABLE)
    if not target or sys.prefix == target:
        return
    arguments = get_arguments()
    if runs_pip(arguments):
        if not os.path.exists(f"{target}/pyvenv.cfg"):
            make(target)
        os.execv(f"{target}/bin/python3", [f"{target}/bin/python3", *arguments[1:]])
    packages = get_packages(target)
    if os.path.isdir(packages):
        site.addsitedir(packages)


if __name__ == NAME:
    begin()
