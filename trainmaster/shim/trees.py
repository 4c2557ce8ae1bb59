"""Trees of files that somebody else may change while they are looked at: walked and removed by descriptor.

Used by the node and by history, as root, over directories that a Pod writes to. No path is ever looked up twice, no
link is followed, and no other file system is entered: a directory that is exchanged for a link to /etc is not a
directory any more when it is opened, and that is all that happens. Trees of any depth cost a constant number of
descriptors and no recursion; names are whatever bytes the file system holds (as `os.fsdecode` shows them).
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
"""Directories of one walk that are open at a time. Those above are found again through `..`, and recognised."""
_ASIDE = ".going"
"""Names that a removal gives to directories which it moves up."""
_AT_ONCE = 1000
"""Directories whose names a removal holds."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """What a walk comes by."""

    directory: int
    """Descriptor of the directory that holds it, open until the walk goes on."""
    name: str
    path: str
    """Relative to where the walk began. For showing: nothing is opened by it."""
    status: os.stat_result
    """Of itself: links are not followed."""


@dataclass(slots=True)
class _Level:
    handle: int
    """-1: closed, to be found again from the level below."""
    identity: tuple[int, int]
    path: str
    children: list[str] = field(default_factory=list)


class TreeWalk:
    """Iterates over everything below a directory; directories come before what they hold."""

    def __init__(self, root: str | int) -> None:
        """OSError when the root is no directory (or a link to one). A descriptor stays the caller's."""
        self.whole = True
        """False once something could not be looked at: it was closed to us, or moved away meanwhile."""
        handle = os.open(root, _OPEN_DIRECTORY) if isinstance(root, str) else os.open(".", _OPEN_DIRECTORY, dir_fd=root)
        status = os.fstat(handle)
        self._device = status.st_dev
        self._levels = [_Level(handle, (status.st_dev, status.st_ino), "")]
        self._skipped = False

    def skip(self) -> None:
        """What the directory that came last holds is not wanted."""
        self._skipped = True

    def close(self) -> None:
        """Before the end: an iteration that goes to its end closes by itself."""
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
                    continue  # gone since
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
        """Through `..`, which leads elsewhere if the directory was moved; then the rest cannot be looked at."""
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
    """A directory and all below it; False when something is left. A link, or nothing at all, is left as it is.

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
        """Whether it is worth while to go on."""
        names = list(itertools.islice(_unlink_files(self._root), _AT_ONCE))
        return sum(self._remove_directory(name) for name in names) > 0

    def _remove_directory(self, name: str) -> bool:
        """One that lies in the root. Those in it come to lie beside it."""
        try:
            handle = _open_anyhow(name, self._root)
        except OSError:
            return False  # the removal of the root says that something is left
        try:
            if os.fstat(handle).st_dev != self._device:
                return False
            # Files first: on a full disk there is room for a name then.
            for inner in _unlink_files(handle):
                self._move_up(handle, inner)
        finally:
            os.close(handle)
        return _remove_empty(name, self._root)

    def _move_up(self, handle: int, name: str) -> None:
        if _remove_empty(name, handle):
            return
        try:
            # Whoever moves a directory must be allowed to write into it, and a program may have closed it.
            os.close(_open_anyhow(name, handle))
            os.rename(name, self._find_name(), src_dir_fd=handle, dst_dir_fd=self._root)
        except OSError:
            return  # as above

    def _find_name(self) -> str:
        for number in self._numbers:
            try:
                os.stat(f"{_ASIDE}-{number}", dir_fd=self._root, follow_symlinks=False)
            except FileNotFoundError:
                return f"{_ASIDE}-{number}"
        raise AssertionError("numbers have no end")


def _unlink_files(handle: int) -> Iterator[str]:
    """Unlinks all that is no directory, then yields the directories."""
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
    """A directory, opened to all that its owner may do with it."""
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
    """What was written into a file, and not the holes between: a sparse file stays one."""
    size, place = os.fstat(source).st_size, 0
    os.ftruncate(target, size)
    while place < size:
        try:
            place = os.lseek(source, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = os.lseek(source, place, os.SEEK_HOLE)
        while place < end:
            piece = os.pread(source, min(end - place, 1 << 20), place)
            if not piece:
                return  # somebody cut it
            place += os.pwrite(target, piece, place)
