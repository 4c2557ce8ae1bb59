"""The bundles of a home: found by digest, verified after a power failure, deleted when unused.

    <root>/sha256-<hex>/tree/          the files
    <root>/sha256-<hex>/bundle.json    how many, how large, and in which boot of the machine they were written
    <root>/sha256-<hex>/durable        exists once all of it is known to be on disk
    <root>/cache/                      what `packing` remembers of directories that it packed
    <root>/lock                        shared while packing, exclusive while deleting

A bundle's age is that of its directory's timestamp, which `packing` updates on every use, so a new bundle is not
deleted before the job that needs it exists. Several processes write at the same time: everything is created under a
temporary name and renamed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.bundles.walking import FileTree, walk_plainly

PREFIX = "sha256:"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SALT = b"trainmaster code 1\0"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_INFO = "bundle.json"
_DURABLE = "durable"
_DRAFT = ".new-"
CACHE = "cache"
_CACHE_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Stored:
    """An existing bundle."""

    digest: str
    tree: Path
    files: int
    bytes: int


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def compute_digest(tree: FileTree, hashes: dict[str, str]) -> str:
    """Covers names, contents, executable bits, links and directories; nothing that differs between two copies."""
    digest = hashlib.sha256(_SALT)
    entries: list[tuple[bytes, bytes]] = [(os.fsencode(path), b"d\0\0") for path in tree.directories]
    entries += [(os.fsencode(path), b"l\0" + os.fsencode(target) + b"\0") for path, target in tree.links.items()]
    for path, mark in tree.files.items():
        kind = b"x\0" if mark.executable else b"f\0"
        entries.append((os.fsencode(path), kind + hashes[path].encode() + b"\0"))
    for name, rest in sorted(entries):
        digest.update(name + b"\0" + rest)
    return f"{PREFIX}{digest.hexdigest()}"


class BundleStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, digest: str) -> Stored | None:
        """None if there is no such bundle, or a power failure left it incomplete."""
        place = self.get_place(digest)
        try:
            info = json.loads((place / _INFO).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            info = {}
        if info.get("boot") != read_boot_id() and not (place / _DURABLE).exists() and not self._verify(digest, place):
            return None
        return Stored(digest, place / "tree", int(info.get("files", 0)), int(info.get("bytes", 0)))

    def get_place(self, digest: str) -> Path:
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is not a digest: it must be sha256: and 64 hexadecimal digits")
        return self.root / digest.replace(":", "-")

    def _verify(self, digest: str, place: Path) -> bool:
        """Verifies a bundle that was written before the machine went down and may not have reached the disk
        completely."""
        found = walk_plainly(place / "tree") if (place / "tree").is_dir() else FileTree(place)
        if compute_digest(found, {path: hash_file(place / "tree" / path) for path in found.files}) == digest:
            (place / _DURABLE).touch()
            return True
        self._remove(place)
        return False

    def touch(self, digest: str) -> None:
        """Marks the bundle as used now."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.get_place(digest))

    def make_durable(self, digest: str) -> None:
        """Returns once it is on disk. Slow; call it in a thread."""
        place = self.get_place(digest)
        if (place / _DURABLE).exists():
            return
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), str(place))
        finally:
            os.close(handle)
        (place / _DURABLE).touch()

    def list_digests(self) -> list[str]:
        names = os.listdir(self.root) if self.root.is_dir() else []
        return sorted(digest for name in names if is_digest(digest := name.replace("-", ":", 1)))

    def list_unused(self, used: Collection[str], *, before: float) -> list[str]:
        """Bundles that are not in `used` and were not packed or used since that time (seconds since the epoch)."""
        return [digest for digest in self.list_digests() if digest not in used and self._get_time(digest) < before]

    def _get_time(self, digest: str) -> float:
        try:
            return self.get_place(digest).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def forget(self, digests: Collection[str], *, before: float) -> list[str]:
        """Deletes those that are still unused, and drafts left by a crash. Returns the deleted digests; none while a
        pack is in progress, which may take long."""
        gone: list[str] = []
        if not self.root.is_dir():
            return gone
        with self.locked(exclusive=True) as is_locked:
            if not is_locked:
                return gone
            for digest in digests:
                if self._get_time(digest) < before:
                    self._remove(self.get_place(digest))
                    gone.append(digest)
            self._remove_leftovers(before)
        return gone

    def _remove_leftovers(self, before: float) -> None:
        """Deletes drafts of packs that died, and caches of directories that are no longer packed."""
        for draft in self.root.glob(f"{_DRAFT}*"):
            if draft.stat().st_mtime < before:
                shutil.rmtree(draft, ignore_errors=True)
        for path in (self.root / CACHE).glob("*"):
            if path.stat().st_mtime < before - _CACHE_SECONDS:
                path.unlink()

    def _remove(self, place: Path) -> None:
        """Renames it first, so that nobody finds a part of it."""
        aside = self.make_draft()
        with contextlib.suppress(FileNotFoundError):
            place.rename(aside / "gone")
        shutil.rmtree(aside, ignore_errors=True)

    def make_draft(self) -> Path:
        """A new private directory."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 0
        while True:
            draft = self.root / f"{_DRAFT}{os.getpid()}-{number}"
            try:
                draft.mkdir(mode=0o700)
                return draft
            except FileExistsError:
                number += 1

    def add(self, draft: Path, digest: str, tree: FileTree) -> None:
        """Renames a draft with a complete `tree` to the bundle of that digest, unless it exists meanwhile."""
        info = {"version": 1, "files": len(tree.files), "bytes": tree.bytes, "boot": read_boot_id()}
        (draft / _INFO).write_text(json.dumps(info))
        try:
            draft.rename(self.get_place(digest))
        except OSError:
            if self.find(digest) is None:
                raise
            shutil.rmtree(draft, ignore_errors=True)
        self.touch(digest)

    @contextmanager
    def locked(self, *, exclusive: bool = False) -> Iterator[bool]:
        """Keeps deletion from running during a pack. A shared lock waits; an exclusive one does not, and yields whether
        it was obtained."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.root / "lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
            except BlockingIOError:
                yield False
            else:
                yield True


def hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_boot_id() -> str:
    with open(_BOOT_ID) as file:
        return file.read().strip()
