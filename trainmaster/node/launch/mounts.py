"""Resolves volumeMounts of a container to directories of this machine. Creates missing subPaths, and at the plain level
links between volumes; nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_text
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import CONFIG_ERROR, UNSUPPORTED, LaunchError, Prepared, Site
from trainmaster.node.launch.expansion import expand
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.node.volumes.creation import API_ACCESS
from trainmaster.node.volumes.sub_path import make_sub_path
from trainmaster.shim.protocol import OVERLAY, Mount

API_ACCESS_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
SHM = "/dev/shm"
MOST_MOUNTS = 500
"""Per container, because each takes time while others wait."""


def get_kubeconfig(site: Site) -> str:
    """At the plain level, for clients inside the Pod."""
    return f"{site.directory}/kubeconfig"


@dataclass(frozen=True, slots=True)
class Bound:
    """A resolved volumeMount."""

    target: str
    source: str
    """Path on this machine, for programs that run there. Mounting uses the volume and `sub_path` instead."""
    read_only: bool
    volume: Volume
    sub_path: str = ""


def resolve_mounts(container: Fields, prepared: Prepared, variables: Mapping[str, str]) -> list[Bound]:
    """In mount order: a path precedes the paths below it."""
    asked = list_items(container, "volumeMounts")
    if len(asked) > MOST_MOUNTS:
        text = f'container "{container["name"]}" has {len(asked)} volumeMounts; this node mounts {MOST_MOUNTS}'
        raise LaunchError(UNSUPPORTED, text)
    found = [_resolve(container["name"], entry, prepared, variables) for entry in asked]
    targets = {entry.target for entry in found}
    own = prepared.volumes.get(API_ACCESS)
    if own is not None and API_ACCESS_PATH not in targets:
        found.append(Bound(API_ACCESS_PATH, own.source, True, own))
    return sorted(found, key=lambda entry: entry.target.count("/") if entry.target != "/" else 0)


def _resolve(container: str, entry: Fields, prepared: Prepared, variables: Mapping[str, str]) -> Bound:
    if entry.get("mountPropagation") not in (None, "None") or entry.get("recursiveReadOnly") not in (None, "Disabled"):
        text = f'container "{container}" asks for mountPropagation or recursiveReadOnly, which this node does not give'
        raise LaunchError(UNSUPPORTED, text)
    volume = prepared.volumes.get(entry["name"])
    if volume is None:
        raise LaunchError(CONFIG_ERROR, f'cannot find volume "{entry["name"]}" to mount into container "{container}"')
    target = entry["mountPath"].rstrip("/") or "/"
    if not target.startswith("/"):
        target = f"/{target}"
    sub = read_text(entry, "subPath")
    if expression := entry.get("subPathExpr"):
        sub = _expand_sub_path(expression, variables)
    try:
        if sub:
            make_sub_path(volume.source, sub)
    except (VolumeError, OSError) as error:
        raise LaunchError(
            CONFIG_ERROR, f'failed to prepare subPath for volumeMount "{entry["name"]}": {error}'
        ) from None
    source = os.path.normpath(f"{volume.source}/{sub}") if sub else volume.source
    return Bound(target, source, bool(entry.get("readOnly")) or volume.read_only, volume, sub)


def _expand_sub_path(expression: str, variables: Mapping[str, str]) -> str:
    text = expand(expression, variables)
    if "$(" in text and "$$" not in expression:
        missing = text[text.index("$(") + 2 :].partition(")")[0]
        raise LaunchError(CONFIG_ERROR, f"missing value for {missing!r} in subPathExpr {expression!r}")
    return text


def link_neighbours(bound: Sequence[Bound], directory: str) -> None:
    """At the plain level: a volume that is mounted beside the code or in it gets the same relative path (`../data`),
    because programs start in the code. Only in the Pod's own volumes, and nothing is replaced."""
    code = next((entry for entry in bound if entry.volume.code), None)
    if code is None:
        return
    for entry in bound:
        place = os.path.normpath(f"{code.source}/{os.path.relpath(entry.target, code.target)}")
        if place.startswith(f"{directory}/volumes/") and not os.path.lexists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(entry.source, place)


def build_mounts(bound: list[Bound]) -> tuple[Mount, ...]:
    """For a sandbox. A memory volume at /dev/shm is the sandbox's own /dev/shm, which all containers share."""
    return tuple(_build_mount(entry) for entry in bound if not (entry.volume.memory and entry.target == SHM))


def _build_mount(entry: Bound) -> Mount:
    if entry.volume.layer and not entry.read_only:
        return Mount(entry.target, entry.source, OVERLAY, layer=entry.volume.layer)
    return Mount(entry.target, entry.volume.source, read_only=entry.read_only, sub_path=entry.sub_path)


def get_shm_bytes(pod: Pod, prepared: Prepared) -> int:
    """The size of /dev/shm that the Pod requests by mounting a memory volume there; 0 if it does not."""
    for container in pod.all_containers:
        for entry in list_items(container, "volumeMounts"):
            volume = prepared.volumes.get(entry["name"])
            if volume is not None and volume.memory and entry["mountPath"].rstrip("/") == SHM:
                return volume.size_limit
    return 0
