"""projected: several sources in one directory, including the volume that every Pod gets for its service account.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.node.volumes import config_map, downward, secret
from trainmaster.node.volumes.contract import VolumeError
from trainmaster.node.volumes.tokens import DEFAULT_SECONDS
from trainmaster.node.volumes.writer import File

TokenKey = tuple[str, int]
"""(audience, seconds) of a token request."""
ROOT_CA = "kube-root-ca.crt"

API_ACCESS_SOURCES: Fields = {
    "defaultMode": 0o644,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": DEFAULT_SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "optional": True, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ],
}


def get_token_key(source: Fields) -> TokenKey:
    return read_text(source, "audience"), int(source.get("expirationSeconds") or 3600)


def list_tokens(volume: Fields) -> Iterator[Fields]:
    for part in list_items(volume, "projected", "sources"):
        if part.get("serviceAccountToken") is not None:
            yield part["serviceAccountToken"]


def build_files(
    source: Fields,
    config_maps: Mapping[str, Object | None],
    secrets: Mapping[str, Object | None],
    tokens: Mapping[TokenKey, str],
    read: downward.FieldReader,
    token_mode: int = 0o600,
) -> dict[str, File]:
    """`token_mode`: 0600, unless containers run as different users and all have to read it, as with the kubelet."""
    mode = source.get("defaultMode", 0o644)
    files: dict[str, File] = {}
    for part in list_items(source, "sources"):
        if (entry := part.get("configMap")) is not None:
            files.update(config_map.build_files(config_maps.get(entry.get("name", "")), entry, mode))
        elif (entry := part.get("secret")) is not None:
            files.update(secret.build_files(secrets.get(entry.get("name", "")), entry, mode))
        elif (entry := part.get("downwardAPI")) is not None:
            files.update(downward.build_files(entry, mode, read))
        elif (entry := part.get("serviceAccountToken")) is not None:
            files[entry["path"]] = File(tokens[get_token_key(entry)].encode(), token_mode)
        else:
            raise VolumeError(f"projected source {', '.join(part)} is not carried out on this node")
    return files
