"""Opens and creates paths inside a directory that others may change at any time, by descriptor.

Paths are resolved in one of two ways, for volumes and for a container's new root:

    beneath   links may lead anywhere below the directory; one that leads out of it is an error (`PathEscapes`)
    inside    the directory acts as the root: absolute links and `..` stay inside it

The kernel resolves the whole path (openat2), so replacing a directory by a link meanwhile has no effect. On kernels
without that call, and if parts of the path must be created, it is resolved name by name while every directory on the
way is held open. Links in /proc that lead to other namespaces are never followed. The result is a descriptor (O_PATH)
to mount or inspect, never a name to look up again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from trainmaster.shim.sandbox import linux

_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
"""The kernel's own limit."""
_MOST_LEVELS = 255
"""Each level needs a descriptor while a path is walked."""
_TRIES = 16
"""The kernel returns EAGAIN for a path with `..` if anything is renamed meanwhile."""
_MISSING_CALL = (errno.ENOSYS, errno.EPERM)
"""Not supported by the kernel, or refused by a container runtime around us."""


class PathEscapes(OSError):
    """A link or `..` leads out of the directory."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, f"{path} leads out of its directory")


@dataclass(frozen=True, slots=True)
class MakeOptions:
    """How missing directories and files are created."""

    mode: int = 0o755
    """The mode of directories, regardless of the umask."""
    directory: bool = True
    """Whether the last name is a directory; otherwise an empty file is created."""


def is_below(path: str, places: Iterable[str]) -> bool:
    """Compares names only."""
    return any(path == place or path.startswith(f"{place}/") for place in places)


def open_beneath(root: int, path: str) -> int:
    return _open(root, path, linux.RESOLVE_BENEATH)


def open_inside(root: int, path: str) -> int:
    return _open(root, path, linux.RESOLVE_IN_ROOT)


def make_beneath(root: int, path: str, making: MakeOptions) -> int:
    """Like `open_beneath`, but creates what is missing."""
    try:
        return open_beneath(root, path)
    except FileNotFoundError:
        return _walk(root, path, making=making)


def make_inside(root: int, path: str, making: MakeOptions) -> int:
    try:
        return open_inside(root, path)
    except FileNotFoundError:
        return _walk(root, path, inside=True, making=making)


def open_file(root: int, path: str) -> int:
    """Opens a regular file for reading. Raises OSError for links and anything else, such as pipes, which would
    block."""
    place = _open(root, path, linux.RESOLVE_BENEATH | linux.RESOLVE_NO_SYMLINKS)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, f"{path} is not a file")
        return os.open(get_path(place), os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)


def open_directory(path: str) -> int:
    """Opens the directory to start from. Nobody else may be able to change its path."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def is_directory(handle: int) -> bool:
    return stat.S_ISDIR(os.fstat(handle).st_mode)


def get_path(handle: int) -> str:
    """A path for calls that take no descriptor; it leads to the open file even if that was renamed."""
    return f"/proc/self/fd/{handle}"


def _open(root: int, path: str, resolve: int) -> int:
    for _ in range(_TRIES):
        try:
            return linux.openat2(root, path, os.O_PATH | os.O_CLOEXEC, resolve | linux.RESOLVE_NO_MAGICLINKS)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise PathEscapes(path) from None
            if error.errno in _MISSING_CALL:
                break
            if error.errno != errno.EAGAIN:
                raise
    most_links = 0 if resolve & linux.RESOLVE_NO_SYMLINKS else _MOST_LINKS
    return _walk(root, path, inside=bool(resolve & linux.RESOLVE_IN_ROOT), most_links=most_links)


def _walk(
    root: int, path: str, *, inside: bool = False, making: MakeOptions | None = None, most_links: int = _MOST_LINKS
) -> int:
    if path.startswith("/") and not inside:
        raise PathEscapes(path)
    walker = _Walker(root, path, inside, most_links)
    try:
        return walker.walk(making)
    finally:
        walker.close()


class _Walker:
    def __init__(self, root: int, path: str, inside: bool, most_links: int) -> None:
        self._path = path
        self._links_left = most_links
        self._inside = inside
        self._held = [os.dup(root)]
        self._names = path.split("/")[::-1]

    def walk(self, making: MakeOptions | None) -> int:
        while self._names:
            name = self._names.pop()
            if name in ("", "."):
                continue
            if name == "..":
                self._go_up()
                continue
            handle = self._step(name, making)
            if stat.S_ISLNK(os.fstat(handle).st_mode):
                self._follow(handle)
            else:
                self._held.append(handle)
            if len(self._held) > _MOST_LEVELS:
                raise OSError(errno.ENAMETOOLONG, f"{self._path} has more than {_MOST_LEVELS} directories")
        return self._held.pop()

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)
        self._held.clear()

    def _go_up(self) -> None:
        if len(self._held) > 1:
            os.close(self._held.pop())
        elif not self._inside:
            raise PathEscapes(self._path)

    def _step(self, name: str, making: MakeOptions | None) -> int:
        try:
            return os.open(name, _PLACE, dir_fd=self._held[-1])
        except FileNotFoundError:
            if making is None:
                raise
        return _make(self._held[-1], name, making if not any(self._names) else MakeOptions(making.mode))

    def _follow(self, handle: int) -> None:
        try:
            target = os.readlink("", dir_fd=handle)
        finally:
            os.close(handle)
        self._links_left -= 1
        if self._links_left < 0:
            raise OSError(errno.ELOOP, f"{self._path} has too many links")
        if target.startswith("/"):
            if not self._inside:
                raise PathEscapes(self._path)
            while len(self._held) > 1:
                os.close(self._held.pop())
        self._names += target.split("/")[::-1]


def _make(parent: int, name: str, making: MakeOptions) -> int:
    """If somebody else creates it first, theirs is used and the caller checks what it is."""
    if not making.directory:
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            os.close(os.open(name, flags, 0o644, dir_fd=parent))
        return os.open(name, _PLACE, dir_fd=parent)
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return os.open(name, _PLACE, dir_fd=parent)
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    os.fchmod(handle, making.mode)
    return handle
