"""Packs a directory into an immutable bundle.

`trainmaster run` calls `pack` and puts the digest into the job. Files that were packed before are recognized by their
timestamps and not read again (`remembering`); in a new bundle they are hard links to the last one. A file that changes
while it is read is read again, and at the end all files are checked once more: the bundle is a consistent snapshot of
the directory, or packing fails and names the file that keeps changing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainmaster.bundles import git, remembering
from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.ignoring import OWN_FILE
from trainmaster.bundles.remembering import Memory
from trainmaster.bundles.store import BundleStore, compute_digest
from trainmaster.bundles.walking import BundleLimits, FileMark, FileTree, build_mark, walk

__all__ = ["Bundle", "BundleLimits", "pack"]

_PIECE = 4 << 20
_ROUNDS = 4
"""How often changing files are read again."""


@dataclass(frozen=True, slots=True)
class Bundle:
    digest: str
    files: int
    bytes: int
    git_commit: str = ""
    """The commit of the directory's repository; empty without one."""
    git_dirty: bool | None = None
    """Whether the directory differs from that commit; None if unknown."""
    reused: bool = False
    """Whether the bundle existed already."""


def pack(
    directory: Path,
    store: Path,
    limits: BundleLimits = BundleLimits(),  # noqa: B008  # frozen
    home: Path | None = None,
) -> Bundle:
    """Packs a directory into the store (`Home.bundles`), without `home`; default: the one that the store belongs to.
    Raises BundleError."""
    directory = Path(os.path.abspath(directory))
    asked = git.ask(directory)
    try:
        packed, tree, reused = _pack(directory, BundleStore(store), limits, home or store.parent)
    except FileNotFoundError as error:
        raise BundleError(f"{error.filename} was removed while {directory} was packed: try again") from error
    except OSError as error:
        raise BundleError(f"the code in {directory} cannot be packed into {store}: {error.strerror}") from error
    finally:
        state = asked.read()
    return Bundle(packed, len(tree.files), tree.bytes, state.commit, state.dirty, reused)


def _pack(directory: Path, store: BundleStore, limits: BundleLimits, home: Path) -> tuple[str, FileTree, bool]:
    path = remembering.get_path(store.root, directory)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    began = remembering.read_time_ns(path.parent)
    memory = remembering.load(path)
    with store.locked():
        tree = walk(directory, limits, home)
        known = {name: found for name, mark in tree.files.items() if (found := memory.find_hash(name, mark))}
        if len(known) == len(tree.files):
            digest = compute_digest(tree, known)
            if store.find(digest) is not None:
                store.touch(digest)
                return digest, tree, True
        draft = store.make_draft()
        try:
            hashes = _Drafting(tree, store, memory, draft / "tree").fill(known)
            digest = compute_digest(tree, hashes)
            reused = store.find(digest) is not None
            if reused:
                store.touch(digest)
            else:
                store.add(draft, digest, tree)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    fresh = Memory(digest, {name: (mark, hashes[name]) for name, mark in tree.files.items()})
    remembering.save(path, fresh, began)
    return digest, tree, reused


class _Drafting:
    """Fills one draft, and updates `tree.files` with what was read."""

    def __init__(self, tree: FileTree, store: BundleStore, memory: Memory, target: Path) -> None:
        self._tree = tree
        self._target = target
        before = store.find(memory.digest) if memory.digest else None
        self._before = None if before is None else before.tree

    def fill(self, known: dict[str, str]) -> dict[str, str]:
        """Copies all files into the draft and returns their hashes."""
        self._target.mkdir()
        for name in self._tree.directories:
            (self._target / name).mkdir()
        for name, link in self._tree.links.items():
            os.symlink(link, self._target / name)
        hashes = {}
        unread = []
        for name in self._tree.files:
            if name in known and self._link(name):
                hashes[name] = known[name]
            else:
                unread.append(name)
        for _ in range(_ROUNDS):
            for name in unread:
                if (found := self._copy(name)) is not None:
                    hashes[name] = found
            unread = self._list_changed(self._tree.files)
            if not unread:
                os.stat(self._tree.root)  # without the directory itself, the bundle would be empty
                return {name: hashes[name] for name in self._tree.files}
        raise BundleError(
            f"{', '.join(unread[:3])} in {self._tree.root} changed each time it was read: stop what writes to it, or "
            f"list it in {self._tree.root / OWN_FILE}"
        )

    def _link(self, name: str) -> bool:
        """Links the file from the last bundle of this directory, without copying."""
        if self._before is None:
            return False
        try:
            os.link(self._before / name, self._target / name, follow_symlinks=False)
        except OSError:
            return False  # missing, or too many links: copy it
        return True

    def _copy(self, name: str) -> str | None:
        """The hash; None if the file is gone, which the next check finds too."""
        source, target = f"{self._tree.root}/{name}", f"{self._target}/{name}"
        for _ in range(_ROUNDS):
            try:
                with open(source, "rb", buffering=0) as file:
                    before = build_mark(os.fstat(file.fileno()))
                    found = _copy_content(file.fileno(), target, before)
                    after = build_mark(os.fstat(file.fileno()))
            except FileNotFoundError:
                return None
            except PermissionError as error:
                raise BundleError(
                    f"{source} cannot be read ({error.strerror}): make it readable, or list it in "
                    f"{self._tree.root / OWN_FILE}"
                ) from None
            self._tree.files[name] = before
            if before == after:
                return found
        return found

    def _list_changed(self, names: Iterable[str]) -> list[str]:
        """The files in the draft that have changed since they were read. Files that are gone are removed."""
        changed = []
        for name in list(names):
            mark = _find_mark(f"{self._tree.root}/{name}")
            if mark is None:
                del self._tree.files[name]
                (self._target / name).unlink(missing_ok=True)
            elif mark != self._tree.files[name]:
                changed.append(name)
        self._tree.bytes = sum(mark.size for mark in self._tree.files.values())
        return changed


def _find_mark(path: str) -> FileMark | None:
    try:
        return build_mark(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _copy_content(source: int, target: str, mark: FileMark) -> str:
    digest = hashlib.sha256()
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while piece := os.read(source, _PIECE):
            digest.update(piece)
            while piece:
                piece = piece[os.write(handle, piece) :]
        # Only the executable bit counts, so that the user's umask has no effect on the job.
        os.fchmod(handle, 0o755 if mark.executable else 0o644)
        os.utime(handle, ns=(mark.mtime_ns, mark.mtime_ns))
    finally:
        os.close(handle)
    return digest.hexdigest()
