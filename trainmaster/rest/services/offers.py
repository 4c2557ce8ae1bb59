"""Which fields a server's TrainJobs have, and the volumes of a job in the shape that it knows.

Trainer 2.1 and we have `podTemplateOverrides`, the shape of the templates; later releases of Trainer have
`runtimePatches` only. The server's own OpenAPI document decides, not a version number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.kit.clock import Clock

FindFields = Callable[[], Awaitable[frozenset[str]]]
"""Names of the fields of `TrainJob.spec` that the server knows."""
DOCUMENT_PATH = "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"
OVERRIDES = "podTemplateOverrides"
PATCHES = "runtimePatches"
MANAGER = "trainmaster.dev/rest"
_KEPT_SECONDS = 300.0


def read_fields(document: Mapping[str, Any]) -> frozenset[str]:
    """From the OpenAPI v3 document of the trainer group; empty when it has no TrainJob."""
    for schema in ((document.get("components") or {}).get("schemas") or {}).values():
        for kind in schema.get("x-kubernetes-group-version-kind") or ():
            if kind.get("kind") == "TrainJob":
                spec = (schema.get("properties") or {}).get("spec") or {}
                return frozenset(spec.get("properties") or ())
    return frozenset()


class Offers:
    """Asks once in five minutes: an upgrade of the cluster is noticed without a restart."""

    def __init__(self, find_fields: FindFields, clock: Clock) -> None:
        self._find_fields = find_fields
        self._clock = clock
        self._known: tuple[float, frozenset[str]] | None = None

    async def has_overrides(self) -> bool:
        fields = await self.list_fields()
        return OVERRIDES in fields or PATCHES not in fields

    async def list_fields(self) -> frozenset[str]:
        """Names of the fields of `TrainJob.spec` that the server knows."""
        now = self._clock.boot()
        if self._known is None or now - self._known[0] > _KEPT_SECONDS:
            self._known = (now, await self._find_fields())
        return self._known[1]


def to_patches(trainjob: Object) -> Object:
    """The same TrainJob with its podTemplateOverrides as runtimePatches."""
    spec = dict(trainjob["spec"])
    overrides = spec.pop(OVERRIDES, None) or []
    jobs = [
        {"name": target["name"], "template": {"spec": {"template": _drop_targets(override)}}}
        for override in overrides
        for target in override.get("targetJobs") or ()
    ]
    if jobs:
        patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        spec[PATCHES] = [*(spec.get(PATCHES) or ()), patch]
    return {**trainjob, "spec": spec}


def _drop_targets(override: Mapping[str, Any]) -> Object:
    return {key: value for key, value in override.items() if key != "targetJobs"}
