"""Finds the files below a directory that a program writes to, as a tree, within a bound.

By descriptor, so a directory that is replaced by a link meanwhile leads nowhere (`shim.trees`). Directories whose names
begin with a dot are left out, such as caches of libraries with the models that they have downloaded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.history.checkpoints.model import CheckpointFile
from trainmaster.shim.trees import TreeWalk

MOST_ENTRIES = 50_000
"""Of one directory tree; the rest is not looked at."""
_DEPTH = 32


@dataclass(slots=True)
class Folder:
    files: dict[str, os.stat_result] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """Links, pipes, devices."""
    folders: dict[str, Folder] = field(default_factory=dict)

    def list_files(self, base: str = "") -> Iterator[tuple[str, os.stat_result]]:
        for name, folder in _walk(self, base):
            for file, status in folder.files.items():
                yield f"{name}{file}", status

    def list_others(self) -> Iterator[str]:
        for name, folder in _walk(self, ""):
            for other in folder.others:
                yield f"{name}{other}"

    def describe(self) -> tuple[CheckpointFile, ...]:
        return tuple(CheckpointFile(path, status.st_size) for path, status in sorted(self.list_files()))


@dataclass(frozen=True, slots=True)
class Scan:
    top: Folder
    whole: bool
    """False if there is more than was looked at."""


def scan(root: Path, most: int = MOST_ENTRIES) -> Scan:
    """Empty if the directory does not exist."""
    top = Folder()
    folders = {"": top}
    try:
        walk = TreeWalk(os.fspath(root))
    except OSError:
        return Scan(top, whole=True)
    whole = True
    for count, entry in enumerate(walk):
        if count >= most:
            walk.close()
            return Scan(top, whole=False)
        parent = folders[entry.path[: -len(entry.name)].removesuffix("/")]
        mode = entry.status.st_mode
        if stat.S_ISREG(mode):
            parent.files[entry.name] = entry.status
        elif not stat.S_ISDIR(mode):
            parent.others.append(entry.name)
        elif entry.name.startswith(".") or entry.path.count("/") >= _DEPTH:
            whole = whole and entry.name.startswith(".")
            walk.skip()
        else:
            folders[entry.path] = parent.folders[entry.name] = Folder()
    return Scan(top, whole=whole and walk.whole)


def _walk(folder: Folder, base: str) -> Iterator[tuple[str, Folder]]:
    left = [(base, folder)]
    while left:
        name, here = left.pop()
        yield name, here
        left += [(f"{name}{inner}/", below) for inner, below in here.folders.items()]
