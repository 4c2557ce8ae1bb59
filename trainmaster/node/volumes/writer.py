"""Updates the files of a volume atomically: readers see the old set or the new one, never a mixture.

The layout is the kubelet's, which programs know: the files are in a directory of their own, `..data` is a link to it,
and each visible name is a link through `..data`. An update writes a new directory and replaces the one link.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.node.volumes.contract import VolumeError
from trainmaster.shim.trees import remove_tree

DATA = "..data"


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class FileOwner:
    """Who may read: the user and group of the container, if they are not the server's."""

    uid: int = -1
    gid: int = -1


SERVER = FileOwner()
"""Files belong to the server's own user."""


def write_files(directory: str, files: Mapping[str, File], token: str, owner: FileOwner = SERVER) -> bool:
    """Makes `directory` show exactly `files`; keys are relative paths. `token` names the new set. False if nothing
    changed.

    A crash at any point leaves the old set in place, and the next call removes leftovers. Raises VolumeError for a path
    that leads out of the directory: the API refuses those, but older Pods may have one.
    """
    for path in files:
        if path.startswith("/") or ".." in path.split("/"):
            raise VolumeError(f"file {path!r} would lie outside of its volume")
    os.makedirs(directory, mode=0o755, exist_ok=True)
    current = _read_link(f"{directory}/{DATA}")
    if current is not None and _read_all(f"{directory}/{current}") == dict(files):
        return False
    fresh = f"..{token}"
    remove_tree(f"{directory}/{fresh}")
    _write_set(f"{directory}/{fresh}", files, owner)
    _swap(directory, DATA, fresh)
    _link_names(directory, files)
    for name in os.listdir(directory):
        if name.startswith("..") and name not in (DATA, fresh):
            remove_tree(f"{directory}/{name}")
    return True


def write_flat(directory: str, files: Mapping[str, File], owner: FileOwner = SERVER) -> bool:
    """The same without links: files are replaced one by one. Every Pod has such a volume, and disks are slow."""
    changed = False
    try:
        os.mkdir(directory, 0o755)
    except FileExistsError:
        have = _read_all(directory)
    else:
        have = {}
    for name, file in files.items():
        if have.get(name) != file:
            _write_one(f"{directory}/..{name}", file, owner)
            os.rename(f"{directory}/..{name}", f"{directory}/{name}")
            changed = True
    return changed


def _write_one(target: str, file: File, owner: FileOwner) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, file.content)
        if owner != SERVER:
            os.fchown(handle, owner.uid, owner.gid)
        os.fchmod(handle, file.mode)
    finally:
        os.close(handle)


def _write_set(directory: str, files: Mapping[str, File], owner: FileOwner) -> None:
    os.mkdir(directory, 0o755)
    for path, file in files.items():
        target = f"{directory}/{path}"
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        _write_one(target, file, owner)


def _link_names(directory: str, files: Mapping[str, File]) -> None:
    wanted = {path.split("/", 1)[0] for path in files}
    for name in os.listdir(directory):
        if not name.startswith("..") and name not in wanted:
            os.unlink(f"{directory}/{name}")
    for name in wanted:
        if _read_link(f"{directory}/{name}") != f"{DATA}/{name}":
            _swap(directory, name, f"{DATA}/{name}")


def _swap(directory: str, name: str, target: str) -> None:
    temporary = f"{directory}/..swap"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, f"{directory}/{name}")


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _read_all(directory: str) -> dict[str, File]:
    found = {}
    for place, _, names in os.walk(directory):
        for name in names:
            path = f"{place}/{name}"
            with open(path, "rb") as stream:
                mode = os.fstat(stream.fileno()).st_mode & 0o777
                found[os.path.relpath(path, directory)] = File(stream.read(), mode)
    return found
