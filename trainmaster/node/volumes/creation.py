"""Creates all volumes of a Pod, each by its kind, and lists what they need from the API.

`list_needs` is pure; `make_all` does the file work and raises `VolumeError` with the volume's name. It is idempotent:
existing volumes are kept, live content is updated.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.training import reports
from trainmaster.api.v1jobs import mpijobs
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.volumes import PersistentVolume
from trainmaster.node.volumes import claim, config_map, downward, empty_dir, host_path, projected, secret
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.node.volumes.projected import TokenKey
from trainmaster.node.volumes.writer import File, FileOwner, write_files, write_flat

API_ACCESS = "kube-api-access"
"""The volume that the node adds for the service account."""
_FLAT = frozenset({API_ACCESS, reports.VOLUME})
"""Volumes of nearly every Pod: a token and certificates. Files are replaced one by one, at a sixth of the cost."""


@dataclass(frozen=True, slots=True)
class Needs:
    config_maps: frozenset[str]
    secrets: frozenset[str]
    claims: frozenset[str]
    tokens: tuple[Fields, ...]


@dataclass(frozen=True, slots=True)
class Supplies:
    """What was read from the API, and where things go."""

    directory: str
    """The Pod's directory."""
    claims_root: Path
    config_maps: Mapping[str, Object | None] = field(default_factory=dict)
    secrets: Mapping[str, Object | None] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    """PersistentVolumes by the name of the claim."""
    tokens: Mapping[TokenKey, str] = field(default_factory=dict)
    host_paths: bool = True
    private: bool = False
    """Everything runs as one user: files of Secrets are not readable by others."""
    owner: FileOwner = field(default_factory=FileOwner)
    several_users: bool = False
    """Containers run as different users."""
    code: Mapping[str, Volume] = field(default_factory=dict)
    """Code volumes by name, which are created before the others, in a thread."""


def list_volumes(pod: Pod, *, api_access: bool) -> list[Fields]:
    volumes = list(pod.volumes)
    if api_access:
        volumes.append({"name": API_ACCESS, "projected": projected.API_ACCESS_SOURCES})
    return volumes


def list_needs(volumes: Sequence[Fields]) -> Needs:
    maps: set[str] = set()
    secrets: set[str] = set()
    claims: set[str] = set()
    tokens: list[Fields] = []
    for volume in volumes:
        if source := volume.get("configMap"):
            maps.add(source.get("name", ""))
        if source := volume.get("secret"):
            secrets.add(source.get("secretName", ""))
        if source := volume.get("persistentVolumeClaim"):
            claims.add(source["claimName"])
        for part in list_items(volume, "projected", "sources"):
            maps |= {part["configMap"].get("name", "")} if part.get("configMap") else set()
            secrets |= {part["secret"].get("name", "")} if part.get("secret") else set()
        tokens += projected.list_tokens(volume)
    return Needs(frozenset(maps - {""}), frozenset(secrets - {""}), frozenset(claims), tuple(tokens))


def make_all(pod: Pod, volumes: Sequence[Fields], supplies: Supplies, read: downward.FieldReader) -> dict[str, Volume]:
    if any(volume["name"] not in _FLAT for volume in volumes):
        os.makedirs(f"{supplies.directory}/volumes", mode=0o700, exist_ok=True)
    made = {}
    for volume in volumes:
        name = volume["name"]
        try:
            made[name] = make(pod, volume, supplies, read)
        except (VolumeError, OSError) as error:
            raise VolumeError(f'MountVolume.SetUp failed for volume "{name}" : {error}') from None
    return made


def make(pod: Pod, volume: Fields, supplies: Supplies, read: downward.FieldReader) -> Volume:
    name = volume["name"]
    if name in supplies.code:
        return supplies.code[name]
    files = build_live_files(volume, supplies, read)
    if files is not None:
        place = f"{supplies.directory}/volumes/{name}"
        if name in _FLAT and not any("/" in path for path in files):
            place = f"{supplies.directory}/{name}"
            write_flat(place, files, supplies.owner)
        else:
            write_files(place, files, _name_set(files), supplies.owner)
        return Volume(name, place, read_only=True, live=True, scratch=True)
    if (source := volume.get("hostPath")) is not None:
        return host_path.make(name, source, allowed=supplies.host_paths)
    if (source := volume.get("persistentVolumeClaim")) is not None:
        found = supplies.volumes[source["claimName"]]
        return claim.make(name, source, found, supplies.claims_root, host_paths=supplies.host_paths)
    if "ephemeral" in volume:
        made = empty_dir.make(name, {}, supplies.directory, pod.uid)
        note = f"ephemeral volume {name} is a directory of the Pod; its claim template is not created"
        return Volume(name, made.source, scratch=True, note=note)
    kinds = [kind for kind in volume if kind != "name"]
    if kinds and kinds != ["emptyDir"]:
        raise VolumeError(f"volumes of kind {kinds[0]} are not carried out on this node")
    return empty_dir.make(name, read_fields(volume, "emptyDir"), supplies.directory, pod.uid)


def build_live_files(volume: Fields, supplies: Supplies, read: downward.FieldReader) -> dict[str, File] | None:
    """The files of a volume whose content is in the API; None for other kinds."""
    if (source := volume.get("configMap")) is not None:
        mode = source.get("defaultMode", config_map.DEFAULT_MODE)
        files = config_map.build_files(supplies.config_maps.get(source.get("name", "")), source, mode)
        return _place_kubectl(files, supplies) if volume["name"] == mpijobs.CONFIG and supplies.private else files
    if (source := volume.get("secret")) is not None:
        mode = source.get("defaultMode", config_map.DEFAULT_MODE)
        return _seal(secret.build_files(supplies.secrets.get(source.get("secretName", "")), source, mode), supplies)
    if (source := volume.get("downwardAPI")) is not None:
        return downward.build_files(source, source.get("defaultMode", config_map.DEFAULT_MODE), read)
    if (source := volume.get("projected")) is not None:
        mode = 0o644 if supplies.several_users else 0o600
        files = projected.build_files(source, supplies.config_maps, supplies.secrets, supplies.tokens, read, mode)
        return _seal(files, supplies)
    return None


def _place_kubectl(files: dict[str, File], supplies: Supplies) -> dict[str, File]:
    """Where there are no mounts, the script that starts the ranks of an MPIJob finds kubectl in its volume."""
    script = files.get(mpijobs.EXEC)
    if script is None:
        return files
    place = shlex.quote(f"{supplies.directory}/volumes/{mpijobs.KUBECTL}/kubectl")
    content = script.content.replace(f"{mpijobs.KUBECTL_PATH}/kubectl".encode(), place.encode())
    return {**files, mpijobs.EXEC: replace(script, content=content)}


def _seal(files: dict[str, File], supplies: Supplies) -> dict[str, File]:
    if not supplies.private:
        return files
    return {path: File(file.content, (file.mode & 0o700) | 0o400) for path, file in files.items()}


def _name_set(files: Mapping[str, File]) -> str:
    """A name derived from the content: the same files have the same name."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path].mode}\0{len(files[path].content)}\0".encode())
        digest.update(files[path].content)
    return digest.hexdigest()[:16]
