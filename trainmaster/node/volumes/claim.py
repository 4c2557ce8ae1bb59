"""persistentVolumeClaim: the directory behind a bound claim. The binder is `controllers/volumes`.

Volumes of our own class name no path in the API: their handle is a directory below the home's `volumes`, made at the
first use. A PersistentVolume with a hostPath or a local path names one of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from trainmaster.api.status import NotFound
from trainmaster.api.storage import DRIVER
from trainmaster.client.contract import Client
from trainmaster.node.volumes import host_path
from trainmaster.node.volumes.contract import Volume, VolumeError


async def find_volume(client: Client, namespace: str, name: str) -> Object:
    """The PersistentVolume that the claim is bound to."""
    try:
        claim = await client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
    except NotFound:
        raise VolumeError(f'persistentvolumeclaim "{name}" not found') from None
    volume = (claim.get("spec") or {}).get("volumeName")
    if "deletionTimestamp" in claim["metadata"]:
        raise VolumeError(f'persistentvolumeclaim "{name}" is being deleted')
    if not volume or (claim.get("status") or {}).get("phase") != "Bound":
        raise VolumeError(f'persistentvolumeclaim "{name}" is not bound yet: kubectl describe pvc {name} says why')
    try:
        return await client.get(PERSISTENT_VOLUMES, volume)
    except NotFound:
        raise VolumeError(f'persistentvolume "{volume}" of claim "{name}" not found') from None


def make(name: str, source: Mapping[str, Any], found: Object, root: Path, *, host_paths: bool) -> Volume:
    spec = found["spec"]
    read_only = bool(source.get("readOnly"))
    csi = spec.get("csi") or {}
    if csi.get("driver") == DRIVER:
        directory = get_directory(root, csi.get("volumeHandle", ""))
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chmod(directory, 0o777)
        return Volume(name, str(directory), read_only=read_only)
    path = (spec.get("hostPath") or spec.get("local") or {}).get("path")
    if not path:
        text = "this node mounts volumes of its own class, hostPath and local ones"
        raise VolumeError(f'persistentvolume "{found["metadata"]["name"]}" cannot be mounted: {text}')
    kind = (spec.get("hostPath") or {}).get("type") or ""
    made = host_path.make(name, {"path": path, "type": kind}, allowed=host_paths)
    return Volume(name, made.source, read_only=read_only)


def get_directory(root: Path, handle: str) -> Path:
    if not handle or "/" in handle or handle.startswith("."):
        raise VolumeError(f"volumeHandle {handle!r} is not a name")
    return root / handle
