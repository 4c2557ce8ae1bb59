"""The cache of the owner's jobs: a directory of the home that they share and may write to.

    <home>/caches/huggingface/hub/models--x/blobs/<hash>     a link to the owner's file
    <home>/caches/huggingface/hub/models--x/snapshots/...    the same relative links as in the owner's cache
    <home>/caches/huggingface/hub/models--x/refs/main        a copy, because libraries overwrite it in place

Directories are real, so that libraries can add files, lock and download newer versions beside what the owner has; the
owner's files stay where they are and are read-only in a sandbox. A file that a job has put there is never replaced.
Links that lead out of the owner's cache are left out.

`refresh` is called before a Pod starts. It compares the timestamps of directories, and reads only a cache that has
changed. Programs of jobs may change the cache meanwhile: everything in it is accessed by descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.bundles.views import is_inside
from trainmaster.node.caches.sources import CacheSource, is_left_out
from trainmaster.shim.protocol import PRIVATE
from trainmaster.shim.sandbox import beneath
from trainmaster.shim.trees import TreeEntry, TreeWalk

log = logging.getLogger(__name__)

MOST_ENTRIES = 100_000
"""Of one source; a cache with more is shown in part."""
_MOST_SHOWN = 200
_REFS = "refs"
_LONGEST_REF = 4096


@dataclass(frozen=True, slots=True)
class CacheView:
    """What a Pod gets."""

    root: str
    """The cache, writable."""
    shown: tuple[str, ...] = ()
    """Directories of the owner with linked files that a sandbox does not show by itself."""


@dataclass(slots=True)
class _Known:
    """A source when it was last read."""

    directories: dict[str, int] = field(default_factory=dict)
    """Its directories and their timestamps; -1 for one that does not exist."""
    shown: set[str] = field(default_factory=set)
    inode: int = -1
    """Of its place in the jobs' cache, which anybody may have deleted since; -1 if there was nothing to show."""


class CacheMirror:
    def __init__(self, root: Path, sources: Sequence[CacheSource]) -> None:
        self._root = root
        self._sources = sources
        self._known: dict[CacheSource, _Known] = {}
        self._lock = threading.Lock()

    def refresh(self) -> CacheView:
        """Blocks. Errors are logged: a job can do without the owner's models."""
        with self._lock:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for source in self._sources:
                if not self._is_current(source):
                    try:
                        self._known[source] = self._read(source)
                    except OSError as error:
                        log.warning("cache not shown", extra={"action": "node.cache", "error": str(error)})
            shown = sorted(path for known in self._known.values() for path in known.shown)
        return CacheView(str(self._root), tuple(shown[:_MOST_SHOWN]))

    def _is_current(self, source: CacheSource) -> bool:
        known = self._known.get(source)
        if known is None or known.inode != self._read_inode(source):
            return False
        return all(_read_time(path) == time for path, time in known.directories.items())

    def _read_inode(self, source: CacheSource) -> int:
        try:
            return os.lstat(self._root / source.place).st_ino
        except OSError:
            return -1

    def _read(self, source: CacheSource) -> _Known:
        """Brings the links up to date with the source."""
        known = _Known({source.path: _read_time(source.path)})
        real = os.path.realpath(source.path)
        cache = beneath.open_directory(os.fspath(self._root))
        try:
            if known.directories[source.path] >= 0:
                _Writer(cache, source.place, real, known).write()
            _remove_dangling(cache, source.place)
        finally:
            os.close(cache)
        known.inode = self._read_inode(source)
        return known


class _Writer:
    """Writes the links of one source."""

    def __init__(self, cache: int, place: str, real: str, known: _Known) -> None:
        self._cache = cache
        self._place = place
        self._real = real
        self._known = known
        self._is_private = beneath.is_below(real, PRIVATE)

    def write(self) -> None:
        walk = TreeWalk(self._real)
        for number, entry in enumerate(walk):
            if number == MOST_ENTRIES:
                log.warning("cache shown in part", extra={"action": "node.cache", "path": self._real})
                walk.close()
                return
            if is_left_out(entry.name):
                walk.skip()
            elif stat.S_ISDIR(entry.status.st_mode):
                self._known.directories[f"{self._real}/{entry.path}"] = entry.status.st_mtime_ns
            else:
                self._write_entry(entry)

    def _write_entry(self, entry: TreeEntry) -> None:
        folder = os.path.dirname(entry.path)
        is_file = stat.S_ISREG(entry.status.st_mode)
        is_ref = is_file and _REFS in folder.split("/")
        target = f"{self._real}/{entry.path}" if is_file else self._find_target(entry)
        if not target:
            return
        try:
            with self._opening(folder) as directory:
                if is_ref:
                    _copy_ref(entry, directory)
                else:
                    _put_link(directory, entry.name, target)
        except OSError as error:
            # A job has put something else there, or the disk is full.
            log.debug("cache entry not shown", extra={"path": entry.path, "error": str(error)})
            return
        if self._is_private and is_file and not is_ref:
            self._known.shown.add(os.path.dirname(target))

    def _find_target(self, entry: TreeEntry) -> str:
        """The target of a link, relative; "" if it leads out of the cache, or the entry is not a link."""
        if not stat.S_ISLNK(entry.status.st_mode):
            return ""
        target = os.readlink(entry.name, dir_fd=entry.directory)
        if target.startswith(f"{self._real}/"):
            target = os.path.relpath(target, os.path.dirname(f"{self._real}/{entry.path}"))
        return target if is_inside(entry.path, target) else ""

    @contextlib.contextmanager
    def _opening(self, folder: str) -> Iterator[int]:
        handle = beneath.make_inside(self._cache, f"{self._place}/{folder}", beneath.MakeOptions())
        try:
            yield handle
        finally:
            os.close(handle)


def _put_link(directory: int, name: str, target: str) -> None:
    """Replaces a link to a place where the owner's cache was before, nothing else."""
    try:
        present = os.readlink(name, dir_fd=directory)
    except FileNotFoundError:
        os.symlink(target, name, dir_fd=directory)
        return
    except OSError as error:
        if error.errno != errno.EINVAL:  # not a link
            raise
        return
    if present != target and present.startswith("/"):
        os.unlink(name, dir_fd=directory)
        os.symlink(target, name, dir_fd=directory)


def _copy_ref(entry: TreeEntry, directory: int) -> None:
    """Unless a job has written a newer one."""
    try:
        present = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
        if present.st_mtime_ns >= entry.status.st_mtime_ns:
            return
    except FileNotFoundError:
        pass
    source = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=entry.directory)
    try:
        content = os.read(source, _LONGEST_REF)
    finally:
        os.close(source)
    temporary = f".{entry.name}.trainmaster"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(temporary, flags, 0o644, dir_fd=directory)
    try:
        os.write(target, content)
        os.utime(target, ns=(entry.status.st_mtime_ns, entry.status.st_mtime_ns))
    finally:
        os.close(target)
    os.rename(temporary, entry.name, src_dir_fd=directory, dst_dir_fd=directory)


def _remove_dangling(cache: int, place: str) -> None:
    """Removes links to files that the owner has deleted, and directories that become empty."""
    try:
        start = beneath.open_inside(cache, place)
    except OSError:
        return
    emptied = set()
    try:
        for entry in TreeWalk(start):
            if stat.S_ISLNK(entry.status.st_mode) and not _exists(entry):
                with contextlib.suppress(OSError):
                    os.unlink(entry.name, dir_fd=entry.directory)
                    emptied.add(os.path.dirname(entry.path))
        for folder in sorted(emptied, key=len, reverse=True):
            _remove_empty(start, folder)
    finally:
        os.close(start)


def _exists(entry: TreeEntry) -> bool:
    try:
        os.stat(entry.name, dir_fd=entry.directory)
    except OSError:
        return False
    return True


def _remove_empty(start: int, folder: str) -> None:
    """The directory and those above it, as far as they are empty."""
    while folder:
        above, _, name = folder.rpartition("/")
        try:
            parent = beneath.open_inside(start, above or ".")
        except OSError:
            return
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError:
            return
        finally:
            os.close(parent)
        folder = above


def _read_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1
