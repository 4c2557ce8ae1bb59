"""emptyDir: a directory of the Pod that is initially empty, kept across container restarts, and removed with the Pod.

Medium Memory uses the machine's tmpfs. At /dev/shm of a sandbox it is that sandbox's own /dev/shm with the kernel's
limit (`launch.mounts`); elsewhere, as on disk, the sizeLimit is monitored and not enforced by the kernel.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.shim.trees import remove_tree

MEMORY = Path("/dev/shm")


def make(name: str, source: Fields, directory: str, uid: str, memory_root: Path = MEMORY) -> Volume:
    limit = source.get("sizeLimit")
    size = int(quantity.parse(limit)) if limit else 0
    memory, note = source.get("medium") == "Memory", ""
    if memory and memory_root.is_dir() and os.access(memory_root, os.W_OK):
        _make_own(memory_root)
        place = f"{get_memory_directory(uid, memory_root)}/{name}"
    else:
        if memory:
            note = f"emptyDir {name} of medium Memory is on disk: this machine has no {memory_root}"
        place = f"{directory}/volumes/{name}"
    os.makedirs(place, mode=0o700, exist_ok=True)
    # All users of the Pod's containers may write; the directories above keep everybody else out.
    os.chmod(place, 0o777)
    return Volume(name, place, memory=memory, size_limit=size, scratch=True, note=note)


def _make_own(memory_root: Path) -> None:
    """Creates the directory of all our Pods there. Everybody may write to the tmpfs, so an existing directory of
    somebody else or a link is refused: it could be replaced at any time."""
    place = _get_own(memory_root)
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    if not _is_own(place):
        raise VolumeError(f"{place} belongs to another user: an emptyDir of medium Memory would not be safe there")


def _is_own(place: str) -> bool:
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            os.fchmod(handle, 0o700)
        return status.st_uid == os.geteuid()
    finally:
        os.close(handle)


def _get_own(memory_root: Path) -> str:
    return f"{memory_root}/trainmaster-{os.getuid()}"


def get_memory_directory(uid: str, memory_root: Path = MEMORY) -> str:
    return f"{_get_own(memory_root)}/{uid}"


def has_memory(uid: str, memory_root: Path = MEMORY) -> bool:
    """Most Pods have none."""
    return os.path.lexists(get_memory_directory(uid, memory_root))


def remove_memory(uid: str, memory_root: Path = MEMORY) -> None:
    """Removes what a Pod left in the tmpfs, and the directory of all Pods with the last one."""
    if not _is_own(_get_own(memory_root)):
        return
    remove_tree(get_memory_directory(uid, memory_root))
    with contextlib.suppress(OSError):
        os.rmdir(_get_own(memory_root))
