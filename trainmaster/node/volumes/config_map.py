"""configMap: one file per key. Pure; `writer` writes the files."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.node.volumes.contract import VolumeError
from trainmaster.node.volumes.writer import File

DEFAULT_MODE = 0o644


def build_files(found: Object | None, source: Fields, mode: int) -> dict[str, File]:
    if found is None:
        if source.get("optional"):
            return {}
        raise VolumeError(f'configmap "{source.get("name", "")}" not found')
    content = {key: text.encode() for key, text in read_fields(found, "data").items()}
    content.update({key: base64.b64decode(text) for key, text in read_fields(found, "binaryData").items()})
    return pick(content, source, mode, "configmap references non-existent config key: {}")


def pick(content: Mapping[str, bytes], source: Fields, mode: int, missing: str) -> dict[str, File]:
    """All keys, or those in `items` with their paths and modes."""
    items = source.get("items")
    if not items:
        return {key: File(data, mode) for key, data in content.items()}
    files = {}
    for item in items:
        if item["key"] not in content:
            if source.get("optional"):
                continue
            raise VolumeError(missing.format(item["key"]))
        files[item["path"]] = File(content[item["key"]], item.get("mode", mode))
    return files
