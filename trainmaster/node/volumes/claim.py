"""persistentVolumeClaim: the directory of a bound claim. `controllers/volumes` binds claims.

Volumes of our own class have no path in the API: their handle is a directory in the home's `volumes`, created at first
use. A PersistentVolume with a hostPath or a local path names one of the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client
from trainmaster.jobs.models.volumes import PersistentVolume, PersistentVolumeClaim
from trainmaster.node.volumes import host_path
from trainmaster.node.volumes.contract import Volume, VolumeError


async def get_volume(client: Client, namespace: str, name: str) -> PersistentVolume:
    """The PersistentVolume that the claim is bound to."""
    try:
        claim = PersistentVolumeClaim(await client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace))
    except NotFound:
        raise VolumeError(f'persistentvolumeclaim "{name}" not found') from None
    if claim.is_deleting:
        raise VolumeError(f'persistentvolumeclaim "{name}" is being deleted')
    if not claim.volume or claim.phase != "Bound":
        raise VolumeError(f'persistentvolumeclaim "{name}" is not bound yet: kubectl describe pvc {name} says why')
    try:
        return PersistentVolume(await client.get(PERSISTENT_VOLUMES, claim.volume))
    except NotFound:
        raise VolumeError(f'persistentvolume "{claim.volume}" of claim "{name}" not found') from None


def make(name: str, source: Fields, found: PersistentVolume, root: Path, *, host_paths: bool) -> Volume:
    read_only = bool(source.get("readOnly"))
    if found.is_ours:
        directory = get_directory(root, found.handle)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chmod(directory, 0o777)
        return Volume(name, str(directory), read_only=read_only)
    spec = found.spec
    path = read_fields(spec, "hostPath" if spec.get("hostPath") else "local").get("path")
    if not path:
        text = "this node mounts volumes of its own class, hostPath and local ones"
        raise VolumeError(f'persistentvolume "{found.name}" cannot be mounted: {text}')
    kind = read_text(spec, "hostPath", "type")
    made = host_path.make(name, {"path": path, "type": kind}, allowed=host_paths)
    return Volume(name, made.source, read_only=read_only)


def get_directory(root: Path, handle: str) -> Path:
    if not handle or "/" in handle or handle.startswith("."):
        raise VolumeError(f"volumeHandle {handle!r} is not a name")
    return root / handle
