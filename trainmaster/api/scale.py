"""The subresource `scale`: an object seen as a Scale (autoscaling/v1), with nothing but its number of replicas.

Each kind declares where its objects keep the numbers (`Kind.scale`). Pure functions; messages are upstream's.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring.kinds import ScalePaths
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Fields, Object

_MOST = 2**31 - 1
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def find_scale(paths: ScalePaths, obj: Fields) -> Object | None:
    """The Scale of an object; None if the part of the object that would be scaled does not exist."""
    *parents, name = _split(paths.spec)
    scaled = _find(obj, parents)
    if scaled is None:
        return None
    replicas = scaled.get(name)
    status: Object = {"replicas": _find(obj, _split(paths.status)) or 0}
    if selector := _find(obj, _split(paths.selector)) if paths.selector else None:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _METADATA if key in obj["metadata"]},
        "spec": {"replicas": paths.default if replicas is None else replicas},
        "status": status,
    }


def build_fields(paths: ScalePaths, replicas: int) -> Object:
    """The part of an object that sets its number of replicas."""
    found: Any = replicas
    for name in reversed(_split(paths.spec)):
        found = {name: found}
    part: Object = found
    return part


def get_parent(paths: ScalePaths) -> str:
    """The path of the part that is scaled, as in `.spec.pytorchReplicaSpecs.Worker`."""
    return paths.spec.rpartition(".")[0]


def check_replicas(paths: ScalePaths, obj: Fields) -> list[FieldError]:
    """Upstream checks the number wherever it is set, not only in a Scale."""
    replicas = _find(obj, _split(paths.spec))
    if type(replicas) is not int:
        return []
    if replicas < 0:
        return [fields.invalid(paths.spec, replicas, "should be a non-negative integer")]
    if replicas > _MOST:
        return [fields.invalid(paths.spec, replicas, f"should be less than or equal to {_MOST}")]
    return []


def _split(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _find(obj: Fields, path: list[str]) -> Any:
    found: Any = obj
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found
