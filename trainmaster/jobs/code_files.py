"""Which ConfigMap has the code of a job, and where its keys are mounted. Pure.

The REST API gives a job its own copy, `JOB-script`, with a key for each file; `run` packs the code for other servers
into one .tar.gz (`compose.carried`). Code in a bundle of the home is no concern of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.api.labels import CODE_MAP
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_annotations, read_text

_SCRIPT = "-script"


@dataclass(frozen=True, slots=True)
class CodeMapReference:
    name: str
    paths: Mapping[str, str] = field(default_factory=dict)
    """Of the keys that are mounted under other names."""


def find_code_map(job: Fields) -> CodeMapReference | None:
    """The ConfigMap with the code of the job; None if it has none."""
    carried = read_annotations(job).get(CODE_MAP)
    if carried:
        return CodeMapReference(carried)
    own = f"{read_text(job, 'metadata', 'name')}{_SCRIPT}"
    volume = _find_volume(job.get("spec"), own)
    if volume is None:
        return None
    items = list_items(volume, "configMap", "items")
    return CodeMapReference(own, {str(item.get("key")): str(item.get("path")) for item in items})


def _find_volume(spec: object, name: str) -> Fields | None:
    """The volume of that ConfigMap, wherever a job has its volumes: in overrides, in patches, in templates."""
    left: list[object] = [spec]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            source = item.get("configMap")
            if isinstance(source, dict) and source.get("name") == name:
                return item
            left += item.values()
        elif isinstance(item, list):
            left += item
    return None
