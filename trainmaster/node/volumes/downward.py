"""downwardAPI: fields of the Pod and resources of its containers as files. Pure."""

from __future__ import annotations

from typing import Protocol

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.node.volumes.contract import VolumeError
from trainmaster.node.volumes.writer import File


class FieldReader(Protocol):
    """How fields are read; provided by `launch`, which also uses it for variables."""

    def field(self, path: str) -> str: ...

    def resource(self, source: Fields) -> str: ...


def build_files(source: Fields, mode: int, read: FieldReader) -> dict[str, File]:
    files = {}
    for item in list_items(source, "items"):
        if (reference := item.get("fieldRef")) is not None:
            text = read.field(reference["fieldPath"])
        elif (reference := item.get("resourceFieldRef")) is not None:
            text = read.resource(reference)
        else:
            raise VolumeError(f"downwardAPI item {item['path']} names neither a field nor a resource")
        files[item["path"]] = File(text.encode(), item.get("mode", mode))
    return files
