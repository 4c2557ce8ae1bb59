"""emptyDir: a directory of the Pod, empty at the start, kept over restarts of containers, gone with the Pod.

Medium Memory lies on the machine's memory file system. At /dev/shm of a sandbox it is that sandbox's own /dev/shm with
the kernel's limit (`launch.mounts`); elsewhere, as on disk, sizeLimit is watched and not enforced by the kernel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.api import quantity
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.trees import remove_tree

MEMORY = Path("/dev/shm")


def make(name: str, source: Mapping[str, Any], directory: str, uid: str, memory_root: Path = MEMORY) -> Volume:
    limit = source.get("sizeLimit")
    size = int(quantity.parse(limit)) if limit else 0
    memory, note = source.get("medium") == "Memory", ""
    if memory and memory_root.is_dir() and os.access(memory_root, os.W_OK):
        place = f"{get_memory_directory(uid, memory_root)}/{name}"
    else:
        if memory:
            note = f"emptyDir {name} of medium Memory is on disk: this machine has no {memory_root}"
        place = f"{directory}/volumes/{name}"
    os.makedirs(place, mode=0o700, exist_ok=True)
    # Any user of the Pod's containers may write; the directories above keep everybody else out.
    os.chmod(place, 0o777)
    return Volume(name, place, memory=memory, size_limit=size, scratch=True, note=note)


def get_memory_directory(uid: str, memory_root: Path = MEMORY) -> str:
    return f"{memory_root}/trainmaster-{os.getuid()}/{uid}"


def remove_memory(uid: str, memory_root: Path = MEMORY) -> None:
    """What a Pod left on the memory file system, and the directory of all Pods with the last one."""
    directory = get_memory_directory(uid, memory_root)
    remove_tree(directory)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(directory))
