"""A bundle as a Pod sees it: a copy of its own, and what a program added to it.

Used by the node. `copy_tree` makes the copy (where the kernel can lay a writable layer over the bundle none is made);
what is not the same in the bundle is what the program wrote.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from trainmaster.bundles.ignoring import ALWAYS

_PARTIAL = ".partial"
LEFT_OUT = ALWAYS | {".cache", ".pod-env"}
"""What programs write beside their work and nobody wants to keep."""


@dataclass(frozen=True, slots=True)
class CopyOwner:
    """Whom the copy belongs to; -1: whoever makes it."""

    user: int = -1
    group: int = -1
    everybody: bool = False
    """All may write: containers run as different users, and the directories above keep others out."""


def copy_tree(tree: Path, target: Path, owner: CopyOwner = CopyOwner()) -> None:  # noqa: B008  # frozen
    """Whole or not at all; once it is there it is left as it is, because a program may have written into it."""
    if target.exists():
        return
    partial = target.with_name(f"{target.name}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    _copy_directory(str(tree), str(partial), owner)
    partial.rename(target)


def _copy_directory(source: str, target: str, owner: CopyOwner) -> None:
    os.mkdir(target)
    for entry in os.scandir(source):
        place = f"{target}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir(follow_symlinks=False):
            _copy_directory(entry.path, place, owner)
        else:
            shutil.copyfile(entry.path, place)
            status = entry.stat(follow_symlinks=False)
            _give(place, stat.S_IMODE(status.st_mode), owner)
            # By the time stamp a file is known that the program did not touch.
            os.utime(place, ns=(status.st_mtime_ns, status.st_mtime_ns))
    _give(target, 0o755, owner)


def _give(path: str, mode: int, owner: CopyOwner) -> None:
    if owner.everybody:
        mode |= 0o066 if not mode & 0o100 else 0o077
    elif owner.group >= 0:
        mode |= 0o020
    os.chmod(path, mode)
    if owner.user >= 0 or owner.group >= 0:
        os.chown(path, owner.user, owner.group)


def is_same_file(status: os.stat_result, below: Path) -> bool:
    """Whether the bundle's file is that one: by size and time stamp."""
    try:
        other = os.lstat(below)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(other.st_mode) and (status.st_size, status.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def is_same_link(target: str, below: Path) -> bool:
    return os.path.islink(below) and os.readlink(below) == target


def is_inside(path: str, target: str) -> bool:
    """Whether a link at that path, with that target, leads to a place in the same tree.

    `..` may stand at the beginning only: after the name of another link nobody can say where it leads.
    """
    names = [name for name in target.split("/") if name not in ("", ".")]
    up = next((number for number, name in enumerate(names) if name != ".."), len(names))
    return not target.startswith("/") and ".." not in names[up:] and up <= path.count("/")
