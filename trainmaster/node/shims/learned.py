"""Remembers which modules of an environment finished programs have imported, so that the next ones start with them.

    <root>/<environment and namespace>.txt      one module per line, in the order of the imports
    <root>/recent.json                          environments that Pods used, for the next server; the newest last

A program writes its list to a file in its home when it ends (`layer_hook`); `Learner` adds it to what is known. Only
for programs that the owner submitted: the modules are imported with the server's rights, although by name only and from
the owner's environment. The file was written by a program, so everything in it may be wrong.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.shim.protocol import write_whole
from trainmaster.shim.sandbox import beneath

log = logging.getLogger(__name__)

FILE = ".pod-imports"
"""In the home of a Pod."""
_MOST_BYTES = 512 << 10
_MOST_MODULES = 5000
_RECENT = "recent.json"
_MOST_RECENT = 4
_WORTHWHILE = 20
"""A zygote imports everything again, so a few more modules of packages that it has already are not worth it."""
_NAME = re.compile(r"(?!.{201})[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NEVER = frozenset({"trainmaster", "pip", "setuptools", "pkg_resources", "_distutils_hack"})


@dataclass(frozen=True, slots=True)
class LearnedImports:
    path: str
    digest: str


@dataclass(slots=True)
class Learner:
    root: Path
    _digests: dict[str, str] = field(default_factory=dict)
    """By file name; "" if nothing is known."""

    def find(self, layer: str, namespace: str) -> LearnedImports | None:
        name = _build_name(layer, namespace)
        if name not in self._digests:
            try:
                content = (self.root / name).read_bytes()
            except OSError:
                content = b""
            self._digests[name] = _hash(content)
        digest = self._digests[name]
        return LearnedImports(str(self.root / name), digest) if digest else None

    def learn(self, layer: str, namespace: str, home: Path) -> None:
        """Adds what the program with this home imported. Blocks."""
        try:
            new = _read_imports(home)
        except OSError:
            return  # it wrote nothing
        name = _build_name(layer, namespace)
        try:
            known = (self.root / name).read_text().split()
        except OSError:
            known = []
        merged = list(dict.fromkeys((*known, *new)))[:_MOST_MODULES]
        added = len(merged) - len(known)
        if added < _WORTHWHILE and _list_packages(merged) == _list_packages(known):
            return
        content = "\n".join(merged).encode()
        try:
            self.root.mkdir(mode=0o700, exist_ok=True)
            write_whole(os.fspath(self.root / name), content)
        except OSError as error:  # a full disk; nothing depends on it
            log.debug("imports not kept", extra={"error": str(error)})
            return
        self._digests[name] = _hash(content)


def _build_name(layer: str, namespace: str) -> str:
    return hashlib.sha256(f"{layer}\0{namespace}".encode()).hexdigest()[:16] + ".txt"


def _list_packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12] if content else ""


def _read_imports(home: Path) -> list[str]:
    directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        file = beneath.open_file(directory, FILE)
    finally:
        os.close(directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return []
        text = os.read(file, _MOST_BYTES).decode(errors="replace")
    finally:
        os.close(file)
    names = text.split("\n")[:_MOST_MODULES]
    return [name for name in names if _NAME.fullmatch(name) and name.partition(".")[0] not in _NEVER]


@dataclass(frozen=True, slots=True)
class WarmUse:
    """What the Pods of a namespace needed for a warm start."""

    namespace: str
    prefix: str
    """The environment; "" is that of the server."""
    teaches: bool = False
    """Whether what its programs imported is known."""
    environ: tuple[tuple[str, str], ...] = ()
    varying: tuple[str, ...] = ()


class RecentUses:
    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self) -> list[WarmUse]:
        """Of earlier servers too, the newest last. Blocks."""
        try:
            return [_read_use(entry) for entry in json.loads((self._root / _RECENT).read_bytes())][-_MOST_RECENT:]
        except (OSError, ValueError, KeyError, TypeError):
            return []  # there is none, or another version wrote it

    def note(self, use: WarmUse) -> None:
        """Blocks."""
        known = self.list()
        others = [other for other in known if (other.namespace, other.prefix) != (use.namespace, use.prefix)]
        kept = [*others, use][-_MOST_RECENT:]
        if kept == known:
            return
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(os.fspath(self._root / _RECENT), json.dumps([asdict(entry) for entry in kept]).encode())
        except OSError as error:  # a full disk; nothing depends on it
            log.debug("recent environments not kept", extra={"error": str(error)})


def _read_use(entry: dict[str, Any]) -> WarmUse:
    return WarmUse(
        namespace=str(entry["namespace"]),
        prefix=str(entry["prefix"]),
        teaches=bool(entry["teaches"]),
        environ=tuple((str(name), str(value)) for name, value in entry["environ"]),
        varying=tuple(map(str, entry["varying"])),
    )
