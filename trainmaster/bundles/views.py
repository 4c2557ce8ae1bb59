"""A bundle as a Pod sees it: a copy of its own, and what a program added to it.

Used by the node. `copy_tree` makes the copy (where the kernel can lay a writable layer over the bundle none is made);
`list_new` compares either of them with the bundle: what is new or changed is what the program wrote.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainmaster.bundles.ignoring import ALWAYS

_PARTIAL = ".partial"
LEFT_OUT = ALWAYS | {".cache", ".pod-env"}
"""What programs write beside their work and nobody wants to keep."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom the copy belongs to; -1: whoever makes it."""

    user: int = -1
    group: int = -1
    everybody: bool = False
    """All may write: containers run as different users, and the directories above keep others out."""


def copy_tree(tree: Path, target: Path, owner: Owner = Owner()) -> None:  # noqa: B008  # frozen
    """Whole or not at all; once it is there it is left as it is, because a program may have written into it."""
    if target.exists():
        return
    partial = target.with_name(f"{target.name}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    _copy_directory(str(tree), str(partial), owner)
    partial.rename(target)


def _copy_directory(source: str, target: str, owner: Owner) -> None:
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


def _give(path: str, mode: int, owner: Owner) -> None:
    if owner.everybody:
        mode |= 0o066 if not mode & 0o100 else 0o077
    elif owner.group >= 0:
        mode |= 0o020
    os.chmod(path, mode)
    if owner.user >= 0 or owner.group >= 0:
        os.chown(path, owner.user, owner.group)


def list_new(view: Path, tree: Path) -> Iterator[tuple[str, os.stat_result]]:
    """(path, status) of files and links in the view that the bundle does not have, or has otherwise."""
    yield from _list_new(str(view), str(tree), "")


def _list_new(view: str, tree: str, base: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in sorted(os.scandir(f"{view}/{base}"), key=lambda item: item.name):
        path = f"{base}{entry.name}"
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _list_new(view, tree, f"{path}/")
            continue
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            if not _is_same_link(entry.path, f"{tree}/{path}") and is_inside(path, os.readlink(entry.path)):
                yield path, status
        elif stat.S_ISREG(status.st_mode) and not _is_same_file(status, f"{tree}/{path}"):
            yield path, status


def _is_same_file(status: os.stat_result, below: str) -> bool:
    try:
        other = os.lstat(below)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(other.st_mode) and (status.st_size, status.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def _is_same_link(path: str, below: str) -> bool:
    return os.path.islink(below) and os.readlink(below) == os.readlink(path)


def is_inside(path: str, target: str) -> bool:
    """Whether a link at that path, with that target, leads to a place in the same tree."""
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return not os.path.isabs(target) and place != ".." and not place.startswith("../")
