"""csi with our driver: the code of a job, from the home's bundles by its digest.

The bundle itself is never written to. In a sandbox it is mounted with a writable layer of the Pod's own, if that
provides what a volume must: one view for all containers that mount it. Otherwise the Pod gets a copy. Either is created
once and kept across restarts of containers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api import code
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.bundles.store import BundleStore, is_digest
from trainmaster.bundles.views import CopyOwner, copy_tree
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.shim.protocol import PLAIN

LAYERS = "scratch/code"
"""Inside the Pod's directory; the shim fixes permissions that overlays leave in `scratch/*/layer*`."""


@dataclass(frozen=True, slots=True)
class CodeVolume:
    """A code volume, and how it is provided."""

    name: str
    digest: str
    read_only: bool
    copied: bool


def list_asked(pod: Pod, level: str, *, foreign: bool) -> list[CodeVolume]:
    """Pure. `foreign`: containers run as another user than the server, and could not write to its files."""
    found = []
    for volume in pod.volumes:
        digest = code.find_digest(volume)
        if digest is not None:
            read_only = bool(volume["csi"].get("readOnly"))
            mounts = _list_mounts(pod, volume["name"])
            shared = len({name for name, _ in mounts}) > 1 or any(_has_sub_path(entry) for _, entry in mounts)
            found.append(
                CodeVolume(volume["name"], digest, read_only, level == PLAIN or (not read_only and shared | foreign))
            )
    return found


def _list_mounts(pod: Pod, name: str) -> list[tuple[str, Fields]]:
    return [
        (container["name"], entry)
        for container in pod.all_containers
        for entry in list_items(container, "volumeMounts")
        if entry["name"] == name
    ]


def _has_sub_path(entry: Fields) -> bool:
    return bool(entry.get("subPath") or entry.get("subPathExpr"))


def make(asked: CodeVolume, store: BundleStore, directory: str, owner: CopyOwner) -> Volume:
    """Reads and may copy many files: call it in a thread. Raises VolumeError if there is no such bundle."""
    if not is_digest(asked.digest):
        text = f"{code.DIGEST} must be sha256: and 64 hexadecimal digits, as `trainmaster code pack` prints it"
        raise VolumeError(_explain(asked.name, f"volumeAttributes.{text}"))
    target = Path(directory, "volumes", asked.name)
    if asked.copied and target.exists():
        return Volume(asked.name, str(target), read_only=asked.read_only, scratch=True, code=asked.digest)
    found = store.find(asked.digest)
    if found is None:
        text = (
            f"this machine has no code {asked.digest}: bring it with `trainmaster code pack DIRECTORY`, from the "
            "directory as it was when that digest was made, or submit the job anew with `trainmaster run`"
        )
        raise VolumeError(_explain(asked.name, text))
    store.touch(asked.digest)
    if not asked.copied:
        layer = "" if asked.read_only else f"{directory}/{LAYERS}/layer-{asked.name}"
        return Volume(asked.name, str(found.tree), read_only=asked.read_only, layer=layer, code=asked.digest)
    os.makedirs(target.parent, mode=0o700, exist_ok=True)
    copy_tree(found.tree, target, owner)
    return Volume(asked.name, str(target), read_only=asked.read_only, scratch=True, code=asked.digest)


def _explain(name: str, text: str) -> str:
    return f'MountVolume.SetUp failed for volume "{name}" : {text}'
