"""Walks and removes directory trees that others may change at the same time, by descriptor.

Used by the node and by history, as root, on directories that a Pod writes to. No path is looked up twice, no link is
followed, and no other file system is entered: if a directory is replaced by a link to /etc, opening it fails, and
nothing else happens. Trees of any depth need a constant number of descriptors and no recursion. Names may be any bytes
(as decoded by `os.fsdecode`).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_OPEN = 32
"""Directories that a walk keeps open at a time. Those above are reopened through `..` and verified."""
_ASIDE = ".going"
"""Prefix of temporary names for directories that a removal moves up."""
_AT_ONCE = 1000
"""How many directory names a removal holds in memory."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry found by a walk."""

    directory: int
    """Descriptor of its directory, open until the next iteration."""
    name: str
    path: str
    """Relative to the start of the walk. For display only, never for opening."""
    status: os.stat_result
    """Of the entry itself: links are not followed."""


@dataclass(slots=True)
class _Level:
    handle: int
    """-1 if closed; reopened from the level below."""
    identity: tuple[int, int]
    path: str
    children: list[str] = field(default_factory=list)


class TreeWalk:
    """Iterates over everything below a directory; directories come before their contents."""

    def __init__(self, root: str | int) -> None:
        """Raises OSError if the root is not a directory (or is a link to one). A descriptor stays the caller's."""
        self.whole = True
        """False once something could not be read: permission was denied, or it was moved meanwhile."""
        handle = os.open(root, _OPEN_DIRECTORY) if isinstance(root, str) else os.open(".", _OPEN_DIRECTORY, dir_fd=root)
        status = os.fstat(handle)
        self._device = status.st_dev
        self._levels = [_Level(handle, (status.st_dev, status.st_ino), "")]
        self._skipped = False

    def skip(self) -> None:
        """Skips the contents of the last directory."""
        self._skipped = True

    def close(self) -> None:
        """Ends an iteration early; a complete one closes by itself."""
        for level in self._levels:
            _close(level)
        self._levels.clear()

    def __iter__(self) -> Iterator[TreeEntry]:
        try:
            yield from self._list(self._levels[0])
            while self._levels:
                level = self._levels[-1]
                if not level.children:
                    self._ascend()
                    continue
                name = level.children.pop()
                if self._descend(level, name):
                    yield from self._list(self._levels[-1])
        finally:
            self.close()

    def _list(self, level: _Level) -> Iterator[TreeEntry]:
        try:
            scan = os.scandir(level.handle)
        except OSError:
            self.whole = False
            return
        with scan:
            for found in scan:
                try:
                    status = found.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError:
                    self.whole = False
                    continue
                self._skipped = False
                yield TreeEntry(level.handle, found.name, f"{level.path}{found.name}", status)
                if stat.S_ISDIR(status.st_mode) and not self._skipped and status.st_dev == self._device:
                    level.children.append(found.name)

    def _descend(self, level: _Level, name: str) -> bool:
        try:
            handle = os.open(name, _OPEN_DIRECTORY, dir_fd=level.handle)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                self.whole = False
            return False
        status = os.fstat(handle)
        if status.st_dev != self._device:
            os.close(handle)
            return False
        self._levels.append(_Level(handle, (status.st_dev, status.st_ino), f"{level.path}{name}/"))
        if len(self._levels) > _MOST_OPEN:
            _close(self._levels[-_MOST_OPEN - 1])
        return True

    def _ascend(self) -> None:
        level = self._levels.pop()
        try:
            if self._levels and self._levels[-1].handle < 0:
                self._find_again(self._levels[-1], level)
        finally:
            _close(level)

    def _find_again(self, parent: _Level, level: _Level) -> None:
        """Reopens a directory through `..`. If it was moved, this leads elsewhere, and the rest cannot be read."""
        handle = os.open("..", _OPEN_DIRECTORY, dir_fd=level.handle)
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) == parent.identity:
            parent.handle = handle
            return
        os.close(handle)
        self.whole = False
        self.close()


def _close(level: _Level) -> None:
    if level.handle >= 0:
        os.close(level.handle)
        level.handle = -1


def remove_tree(path: str | os.PathLike[str]) -> bool:
    """Removes a directory and everything below it; False if something is left. A link or a missing path is ignored.

    Directories inside are moved up to the root of the tree, some at a time, so that neither depth nor number matters.
    """
    path = os.fspath(path)
    try:
        root = _open_anyhow(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        removal = _Removal(root, os.fstat(root).st_dev)
        while removal.remove_some():
            continue
    finally:
        os.close(root)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class _Removal:
    def __init__(self, root: int, device: int) -> None:
        self._root = root
        self._device = device
        self._numbers = itertools.count()

    def remove_some(self) -> bool:
        """Whether to continue."""
        names = list(itertools.islice(_unlink_files(self._root), _AT_ONCE))
        return sum(self._remove_directory(name) for name in names) > 0

    def _remove_directory(self, name: str) -> bool:
        """Removes a directory in the root; the directories in it are moved to the root."""
        try:
            handle = _open_anyhow(name, self._root)
        except OSError:
            return False  # removing the root reports this
        try:
            if os.fstat(handle).st_dev != self._device:
                return False
            # Files first, which makes room for new names on a full disk.
            for inner in _unlink_files(handle):
                self._move_up(handle, inner)
        finally:
            os.close(handle)
        return _remove_empty(name, self._root)

    def _move_up(self, handle: int, name: str) -> None:
        if _remove_empty(name, handle):
            return
        try:
            # Moving a directory requires write permission for it, which a program may have removed.
            os.close(_open_anyhow(name, handle))
            os.rename(name, self._find_name(), src_dir_fd=handle, dst_dir_fd=self._root)
        except OSError:
            return  # reported by the removal of the root

    def _find_name(self) -> str:
        for number in self._numbers:
            try:
                os.stat(f"{_ASIDE}-{number}", dir_fd=self._root, follow_symlinks=False)
            except FileNotFoundError:
                return f"{_ASIDE}-{number}"
        raise AssertionError("numbers have no end")


def _unlink_files(handle: int) -> Iterator[str]:
    """Unlinks everything except directories, then yields the directories."""
    for unlink in (True, False):
        try:
            scan = os.scandir(handle)
        except OSError:
            return
        with scan:
            for entry in scan:
                if entry.is_dir(follow_symlinks=False):
                    if not unlink:
                        yield entry.name
                elif unlink:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.name, dir_fd=handle)


def _remove_empty(name: str, directory: int) -> bool:
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError:
        return False
    return True


def _open_anyhow(name: str, directory: int | None = None) -> int:
    """Opens a directory after giving its owner full permissions."""
    try:
        handle = os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    except PermissionError:
        _let_owner_in(name, directory)
        return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    if os.geteuid() and os.fstat(handle).st_mode & 0o700 != 0o700:
        with contextlib.suppress(PermissionError):
            os.fchmod(handle, 0o700)
    return handle


def _let_owner_in(name: str, directory: int | None) -> None:
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)
    finally:
        os.close(place)


def copy_data(source: int, target: int) -> None:
    """Copies data without holes, so that a sparse file stays sparse."""
    size, place = os.fstat(source).st_size, 0
    os.ftruncate(target, size)
    while place < size:
        try:
            place = os.lseek(source, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(source, place, os.SEEK_HOLE)
        while place < end:
            piece = os.pread(source, min(end - place, 1 << 20), place)
            if not piece:
                return  # it was truncated
            place += os.pwrite(target, piece, place)
