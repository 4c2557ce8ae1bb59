"""secret: like configMap, decoded. The directory is readable by the server's user alone."""

from __future__ import annotations

import base64

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.node.volumes.config_map import pick
from trainmaster.node.volumes.contract import VolumeError
from trainmaster.node.volumes.writer import File


def build_files(found: Object | None, source: Fields, mode: int) -> dict[str, File]:
    if found is None:
        if source.get("optional"):
            return {}
        raise VolumeError(f'secret "{source.get("secretName") or source.get("name", "")}" not found')
    content = {key: base64.b64decode(text) for key, text in read_fields(found, "data").items()}
    return pick(content, source, mode, "references non-existent secret key: {}")
