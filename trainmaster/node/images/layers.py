"""Thin environments: a Python prefix over another one, created with a few small files.

A layer has its own interpreter link, `pyvenv.cfg` and site-packages; a `.pth` file adds the packages of the environment
below, which is never changed. Pods share one layer per environment (`make_shared`), whose hook gives a Pod its own
layer as soon as it runs pip (`layer_hook`). Scripts of the environment below name its interpreter in their shebang;
`make_programs` keeps copies that use the one in PATH.

An environment without our package gets the modules that training programs import (`trainmaster.checkpoint`,
`trainmaster.report`), last on the path, so that a version installed by the Pod takes precedence.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.node.images import layer_hook
from trainmaster.version import PACKAGE

_PTH = layer_hook.BELOW
_HOOK = layer_hook.NAME
_LIBRARY = "library"
_OURS = ("__init__.py", "checkpoint.py", "progress.py", "py.typed", "version.py")
_PLACE = re.compile(r"(.*)/lib(?:64)?/python3(?:\.\d+)?/(?:site|dist)-packages")
_SHARES_SYSTEM = re.compile(r"^include-system-site-packages\s*=\s*true\s*$", re.IGNORECASE | re.MULTILINE)
_TRAMPOLINE = re.compile(rb"^'''exec' .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Base:
    """An environment to build on."""

    prefix: str
    interpreter: str
    """The real interpreter, with links resolved."""
    version: str
    """Such as 3.11; part of directory names."""
    packages: tuple[str, ...]
    """Directories on sys.path that contain packages."""

    def list_prefixes(self) -> list[str]:
        """Its own prefix and those of the environments below it, from which it takes packages and programs."""
        return list_prefixes((f"{self.prefix}/lib/python{self.version}/site-packages", *self.packages))


def list_prefixes(places: Iterable[str]) -> list[str]:
    """The environments with programs to which directories of packages belong."""
    matches = (_PLACE.fullmatch(place) for place in places)
    found = dict.fromkeys(match.group(1) for match in matches if match is not None)
    return [prefix for prefix in found if os.path.isdir(f"{prefix}/bin")]


class BaseError(Exception):
    """The directory is not a Python environment."""


def read_base(prefix: str) -> Base:
    """Inspects a prefix from outside: a venv, or an installation of Python."""
    python = f"{prefix}/bin/python3"
    if not os.access(python, os.X_OK):
        raise BaseError(f"{prefix} is not a Python environment: there is no bin/python3")
    found = sorted(Path(prefix, "lib").glob("python3.*"))
    places = [
        str(path / name) for path in found for name in ("site-packages", "dist-packages") if (path / name).is_dir()
    ]
    if not places:
        raise BaseError(f"{prefix} is not a Python environment: there is no lib/python3.*/site-packages")
    version = Path(places[0]).parent.name.removeprefix("python")
    below = os.path.realpath(python)
    # A layer over a layer must see all layers below.
    chain = [entry for place in places for entry in _read_chain(place)]
    system = _list_system_packages(below, version) if _shares_system_packages(prefix) else []
    return Base(prefix, below, version, tuple(dict.fromkeys((*places, *chain, *system))))


def _shares_system_packages(prefix: str) -> bool:
    """Whether it is a venv made with `--system-site-packages`."""
    try:
        return _SHARES_SYSTEM.search(Path(prefix, "pyvenv.cfg").read_text(errors="replace")) is not None
    except OSError:
        return False


def _list_system_packages(interpreter: str, version: str) -> list[str]:
    """In the order of Python's `site`; Debian has directories of its own."""
    system = str(Path(interpreter).parents[1])
    found = [f"{system}/lib/python{version}/{name}" for name in ("site-packages", "dist-packages")]
    if system == "/usr":
        found = [f"/usr/local/lib/python{version}/dist-packages", "/usr/lib/python3/dist-packages", *found]
    return [place for place in found if os.path.isdir(place)]


def _read_chain(place: str) -> list[str]:
    try:
        lines = Path(place, _PTH).read_text().splitlines()
    except OSError:
        return []
    return [line.partition("addsitedir(")[2].rstrip(")").strip("'\"") for line in lines if "addsitedir(" in line]


def make_shared(root: Path, base: Base, looked_at: Base | None = None) -> str:
    """The layer that Pods start with; nothing is ever installed into it. `looked_at` is the part of `base` that may be
    read."""
    hook = Path(layer_hook.__file__).read_bytes()
    library = {} if has_our_package(looked_at or base) else _read_library()
    stamp = "\0".join((base.prefix, base.interpreter, *base.packages))
    name = hashlib.sha256(b"".join((stamp.encode(), hook, *library.values()))).hexdigest()[:16]
    directory = root / "layers" / name
    make_layer(str(directory), base, hook, library)
    return str(directory)


def has_our_package(base: Base) -> bool:
    """Whether it is installed, including as editable."""
    return any(next(Path(place).glob("trainmaster-*.dist-info"), None) for place in base.packages)


def _read_library() -> dict[str, bytes]:
    return {name: Path(PACKAGE, name).read_bytes() for name in _OURS}


def make_layer(directory: str, base: Base, hook: bytes = b"", library: Mapping[str, bytes] | None = None) -> None:
    """Idempotent."""
    if os.path.exists(f"{directory}/pyvenv.cfg"):
        return
    packages = f"{directory}/lib/python{base.version}/site-packages"
    os.makedirs(packages, mode=0o755, exist_ok=True)
    os.makedirs(f"{directory}/bin", mode=0o755, exist_ok=True)
    for name in ("python", "python3", f"python{base.version}"):
        if not os.path.lexists(f"{directory}/bin/{name}"):
            os.symlink(base.interpreter, f"{directory}/bin/{name}")
    lines = [f"import site; site.addsitedir({place!r})" for place in base.packages]
    if hook:
        # First, because what a Pod installed overrides what is below.
        lines.insert(0, f"import {_HOOK}")
        Path(packages, f"{_HOOK}.py").write_bytes(hook)
    if library:
        place = f"{directory}/{_LIBRARY}"
        os.makedirs(f"{place}/trainmaster", mode=0o755, exist_ok=True)
        for name, content in library.items():
            Path(place, "trainmaster", name).write_bytes(content)
        lines.append(f"import site; site.addsitedir({place!r})")
    Path(packages, _PTH).write_text("\n".join(lines) + "\n")
    # Last: it marks the layer as complete.
    temporary = f"{directory}/pyvenv.cfg.tmp"
    Path(temporary).write_text(
        f"home = {os.path.dirname(base.interpreter)}\ninclude-system-site-packages = false\nversion = {base.version}\n"
    )
    os.rename(temporary, f"{directory}/pyvenv.cfg")


_NSLOOKUP = """#!/bin/sh
# Names of Services are lines in /etc/hosts; other programs of this name ask only name servers, and Pods have none.
# A name of a Pod that has just started may take a moment to appear.
tries=0
until getent ahosts "$1"; do
  tries=$((tries + 1))
  if [ "$tries" -ge 50 ]; then
    echo "** server can't find $1: NXDOMAIN" >&2
    exit 1
  fi
  sleep 0.02
done
"""
"""Init containers wait with it for the name of another Pod."""


def make_programs(root: Path, prefix: str) -> str:
    """Copies of the environment's scripts that use the interpreter in PATH. Created again when programs change."""
    source = Path(prefix, "bin")
    stamp = f"{prefix}\0{source.stat().st_mtime_ns}\0{_NSLOOKUP}"
    target = root / "programs" / hashlib.sha256(stamp.encode()).hexdigest()[:16]
    if target.is_dir():
        return str(target)
    fresh = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for entry in source.iterdir():
        text = _loosen(entry, prefix)
        if text is not None:
            (fresh / entry.name).write_bytes(text)
            (fresh / entry.name).chmod(0o755)
    # Whatever the environment below calls its pip, it must write to the layer.
    for name in ("pip", "pip3"):
        (fresh / name).write_text('#!/bin/sh\nexec python3 -m pip "$@"\n')
        (fresh / name).chmod(0o755)
    (fresh / "nslookup").write_text(_NSLOOKUP)
    (fresh / "nslookup").chmod(0o755)
    if (source / "uv").exists():
        # It installs into VIRTUAL_ENV, which must exist first.
        (fresh / "uv").write_text(f'#!/bin/sh\npython3 -m pip --version >/dev/null\nexec {source}/uv "$@"\n')
        (fresh / "uv").chmod(0o755)
    try:
        fresh.rename(target)
    except OSError:
        # Another process created the same first.
        shutil.rmtree(fresh, ignore_errors=True)
    return str(target)


def _is_below(interpreter: str, prefix: str) -> bool:
    """Whether it is the environment's own; either path may contain a link."""
    return os.path.realpath(os.path.dirname(interpreter)) == os.path.realpath(f"{prefix}/bin")


def _loosen(script: Path, prefix: str) -> bytes | None:
    """A script that names an interpreter of its environment, without the path. None if it is no such script."""
    if not script.is_file() or script.is_symlink() or script.stat().st_size > 1 << 20:
        return None
    content = script.read_bytes()
    first, _, rest = content.partition(b"\n")
    if not first.startswith(b"#!"):
        return None
    named = first[2:].split()
    if named and b"python" in os.path.basename(named[0]) and _is_below(os.fsdecode(named[0]), prefix):
        return b"#!/usr/bin/env python3\n" + rest
    # Installers write this if the interpreter's path is too long for a shebang.
    if first.startswith(b"#!/bin/sh") and _TRAMPOLINE.match(rest):
        return first + b"\n" + _TRAMPOLINE.sub(b"'''exec' python3 \"$0\" \"$@\"", rest, count=1)
    return None
