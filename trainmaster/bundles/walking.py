"""Lists the files, directories and links of a directory that belong to its code, in a fixed order.

Ignore files are honoured, links that lead out of the directory are refused by name, and a tree above the limits ends in
a message that names its largest parts. Only ignore files are read; every entry has the status (`FileMark`) in which it
was found, so that readers notice changes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainmaster.bundles import ignoring
from trainmaster.bundles.errors import BundleError

_LARGEST = 5
_MUCH_TOO_MANY = 4
"""Stop counting at this multiple of the limit on files."""
_SMALL = 50
"""Parts below this fraction of the whole are not named."""
_LINKS_NAMED = 3


class FileMark(NamedTuple):
    """Identifies the content of a file, as far as the file system can tell."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    executable: bool


@dataclass(frozen=True, slots=True)
class BundleLimits:
    bytes: int = 1 << 30
    """The code of a large project is a hundredth of this; anything larger is data."""
    files: int = 50_000
    bytes_by: str = "--code-limit"
    """Where the limit on bytes comes from, for the message."""


@dataclass(slots=True)
class FileTree:
    """Paths are relative, with slashes; every list is sorted."""

    root: Path
    directories: list[str] = field(default_factory=list)
    files: dict[str, FileMark] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Path -> target, relative to the link's directory."""
    bytes: int = 0


@dataclass(slots=True)
class _Walk:
    tree: FileTree
    real: str
    """The root with symbolic links resolved."""
    outside: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    """By top-level name."""
    most_files: int = 0
    """Where to stop; 0 for no limit."""
    home: str = ""
    home_inode: int = -1

    @property
    def is_enough(self) -> bool:
        return bool(self.most_files) and len(self.tree.files) > self.most_files


def build_mark(status: os.stat_result) -> FileMark:
    executable = bool(status.st_mode & 0o100)
    return FileMark(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, executable)


def walk(root: Path, limits: BundleLimits, home: Path | None = None) -> FileTree:
    """Raises BundleError if the directory cannot be read, is too large, or has links that lead out of it. `home` is
    skipped, because it contains keys and earlier bundles."""
    if not root.is_dir():
        raise BundleError(f"{root} is not a directory: name the directory that holds the code")
    found = _Walk(FileTree(root), os.path.realpath(root), most_files=limits.files * _MUCH_TOO_MANY)
    if home is not None and home.is_dir():
        if home.samefile(root):
            raise BundleError(f"{root} is the home of trainmaster itself: name the directory that holds the code")
        found.home, found.home_inode = str(home), home.stat().st_ino
    try:
        _walk_directory(found, "", ignoring.read_levels_above(root.resolve()))
    except PermissionError as error:
        raise BundleError(
            f"{error.filename} cannot be read ({error.strerror}): make it readable, or list it in "
            f"{root / ignoring.OWN_FILE}"
        ) from None
    if found.outside:
        raise BundleError(_explain_links(found))
    if found.tree.bytes > limits.bytes or len(found.tree.files) > limits.files:
        raise BundleError(_explain_size(found, limits))
    return found.tree


def walk_plainly(root: Path) -> FileTree:
    """Lists everything, for trees that were packed before."""
    found = _Walk(FileTree(root), os.path.realpath(root))
    for name, entry in _list_all(str(root), ""):
        _take(found, name, entry, entry.stat(follow_symlinks=False))
    return found.tree


def _list_all(place: str, base: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    for entry in sorted(os.scandir(place), key=lambda item: item.name):
        yield f"{base}{entry.name}", entry
        if entry.is_dir(follow_symlinks=False):
            yield from _list_all(entry.path, f"{base}{entry.name}/")


def _walk_directory(found: _Walk, base: str, levels: ignoring.Levels) -> None:
    place = f"{found.tree.root}/{base}" if base else str(found.tree.root)
    with os.scandir(place) as scan:
        entries = sorted(scan, key=lambda item: item.name)
    names = {entry.name for entry in entries}
    levels = ignoring.add_level(levels, place, base, names)
    for entry in entries:
        if entry.name in ignoring.ALWAYS:
            continue
        if found.is_enough:
            return
        path = f"{base}{entry.name}"
        is_directory = entry.is_dir(follow_symlinks=False)
        if levels and ignoring.is_ignored(levels, path, entry.name, is_directory):
            continue
        if is_directory:
            is_home = entry.inode() == found.home_inode and os.path.samefile(entry.path, found.home)
            if not is_home and not os.path.lexists(f"{entry.path}/{ignoring.ENVIRONMENT_MARK}"):
                found.tree.directories.append(path)
                with suppress(FileNotFoundError):
                    _walk_directory(found, f"{path}/", levels)
            continue
        with suppress(FileNotFoundError):  # it was deleted meanwhile
            _take(found, path, entry, entry.stat(follow_symlinks=False))


def _take(found: _Walk, path: str, entry: os.DirEntry[str], status: os.stat_result) -> None:
    tree, kind = found.tree, stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG:
        tree.files[path] = build_mark(status)
        tree.bytes += status.st_size
        top = path.partition("/")[0]
        found.sizes[top] = found.sizes.get(top, 0) + status.st_size
    elif kind == stat.S_IFLNK:
        target = _place_link(found, path, os.readlink(entry.path))
        if target is None:
            found.outside.append(path)
        else:
            tree.links[path] = target
    elif kind == stat.S_IFDIR:
        tree.directories.append(path)
    # Sockets, pipes and devices are ignored.


def _place_link(found: _Walk, path: str, target: str) -> str | None:
    """The target relative to the link; None if it leads out of the tree. It need not exist."""
    folder = os.path.dirname(path)
    if os.path.isabs(target):
        for root in (str(found.tree.root), found.real):
            if target == root or target.startswith(f"{root}/"):
                return os.path.relpath(target, os.path.join(root, folder))
        return None
    inside = os.path.normpath(os.path.join(folder, target))
    if inside == ".." or inside.startswith("../"):
        return None
    return target


def _explain_links(found: _Walk) -> str:
    shown = ", ".join(f"{path} -> {os.readlink(f'{found.tree.root}/{path}')}" for path in found.outside[:_LINKS_NAMED])
    more = f" and {len(found.outside) - _LINKS_NAMED} more" if len(found.outside) > _LINKS_NAMED else ""
    return (
        f"the code in {found.tree.root} has links that lead out of it: {shown}{more}. Ranks would not find what they "
        f"point to: put the files into the directory, mount them as a volume (--volume), or leave the links out with "
        f"`echo '/{found.outside[0]}' >> {found.tree.root / ignoring.OWN_FILE}`"
    )


def _explain_size(found: _Walk, limits: BundleLimits) -> str:
    tree = found.tree
    ordered = sorted(found.sizes.items(), key=lambda item: -item[1])
    largest = [item for item in ordered[:_LARGEST] if item is ordered[0] or item[1] * _SMALL > tree.bytes]
    named = ", ".join(f"{_show(tree, name)} ({format_bytes(size)})" for name, size in largest)
    if tree.bytes > limits.bytes:
        least = "at least " if found.is_enough else ""
        most = f"{format_bytes(limits.bytes)} ({limits.bytes_by})"
        much = f"{least}{format_bytes(tree.bytes)}, more than the limit of {most}"
    else:
        much = f"{len(tree.files):,} files, more than the limit of {limits.files:,}"
    return (
        f"the code in {tree.root} has {much}. The largest parts are {named}. Leave out what the job does not need, for "
        f"example with `echo '/{_show(tree, largest[0][0])}' >> {tree.root / ignoring.OWN_FILE}`; give data to the job "
        "as a volume instead (--volume)"
    )


def _show(tree: FileTree, name: str) -> str:
    return name if name in tree.files else f"{name}/"


def format_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
