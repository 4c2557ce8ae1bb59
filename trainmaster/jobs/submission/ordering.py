"""Manifests in the order in which they can be created. Used by `submit` and the REST API.

All are read and checked before the first is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Object
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.submission.documents import ManifestDocument

_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap", "PersistentVolume",
          "PersistentVolumeClaim", "ClusterTrainingRuntime", "TrainingRuntime")  # fmt: skip
_LAST = tuple(TRAINING_KINDS)


class ManifestError(Exception):
    """Manifests that cannot be used; the text says where and why."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


@dataclass(slots=True)
class Manifest:
    obj: Object
    place: str
    """For messages: `train.yaml`, `train.yaml line 12`."""
    namespace: str = ""
    line: int = 0


def order_manifests(documents: Sequence[ManifestDocument], source: str) -> list[Manifest]:
    """The manifests in the order in which they can be created. A ManifestError names the place of the problem."""
    found = [_check(document) for document in documents]
    if not found:
        raise ManifestError(f"{source}: there are no objects in there")
    return sorted(found, key=_rank)


def _rank(manifest: Manifest) -> int:
    kind = manifest.obj["kind"]
    if kind in _LAST:
        return len(_FIRST) + 1
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _check(document: ManifestDocument) -> Manifest:
    name = "standard input" if document.source == "-" else document.source
    place, obj = name if document.line == 1 else f"{name} line {document.line}", document.obj
    if document.problems or obj is None:
        problem = document.problems[0]
        line = problem.line or document.line
        raise ManifestError(f"{name} line {line}: {problem.text}", line)
    for key in ("apiVersion", "kind"):
        if not isinstance(obj.get(key), str) or not obj[key]:
            raise ManifestError(f"{place}: {key} is missing; is this a Kubernetes manifest?", document.line)
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise ManifestError(f"{place}: metadata.name is missing", document.line)
    return Manifest(obj, place, line=document.line)
