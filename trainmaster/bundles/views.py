"""A bundle as a Pod sees it: its own copy, and the files that the program added.

Used by the node. `copy_tree` makes the copy (not needed where the kernel supports a writable overlay over the bundle);
whatever differs from the bundle was written by the program.
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
"""By-products of programs that are not worth keeping."""


@dataclass(frozen=True, slots=True)
class CopyOwner:
    """The owner of the copy; -1 for the current user."""

    user: int = -1
    group: int = -1
    everybody: bool = False
    """Everybody may write: containers run as different users, and the directories above keep others out."""


def copy_tree(tree: Path, target: Path, owner: CopyOwner = CopyOwner()) -> None:
    """Copies everything or nothing. An existing copy is left alone, because a program may have written to it."""
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
            # The timestamp tells later that the program did not change the file.
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
    """Whether it is the bundle's file, by size and timestamp."""
    try:
        other = os.lstat(below)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(other.st_mode) and (status.st_size, status.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def is_same_link(target: str, below: Path) -> bool:
    return os.path.islink(below) and os.readlink(below) == target


def is_inside(path: str, target: str) -> bool:
    """Whether a link at that path, with that target, points into the same tree.

    `..` is allowed only at the beginning: after another link its meaning is unknown.
    """
    names = [name for name in target.split("/") if name not in ("", ".")]
    up = next((number for number, name in enumerate(names) if name != ".."), len(names))
    return not target.startswith("/") and ".." not in names[up:] and up <= path.count("/")
