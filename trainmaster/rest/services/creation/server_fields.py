"""Finds out which TrainJob fields the API server supports, from its OpenAPI document instead of a version number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields
from trainmaster.jobs.compose.trainjob import SupportedFields
from trainmaster.kit.clock import Clock

ReadFields = Callable[[], Awaitable[frozenset[str]]]
"""Names of the fields of `TrainJob.spec` that the server knows."""
DOCUMENT_PATH = "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"
MANAGER = "trainmaster.dev/rest"
_KEPT_SECONDS = 300.0


def list_fields(document: Fields) -> frozenset[str]:
    """From the OpenAPI v3 document of the trainer group; empty if it has no TrainJob."""
    for schema in read_fields(document, "components", "schemas").values():
        for kind in list_items(schema, "x-kubernetes-group-version-kind"):
            if kind.get("kind") == "TrainJob":
                return frozenset(read_fields(schema, "properties", "spec", "properties"))
    return frozenset()


class ServerFields:
    """Cached for five minutes, so that an upgrade of the cluster is noticed without a restart."""

    def __init__(self, read_fields: ReadFields, clock: Clock) -> None:
        self._read_fields = read_fields
        self._clock = clock
        self._known: tuple[float, SupportedFields] | None = None

    async def get_shape(self) -> SupportedFields:
        now = self._clock.boot()
        if self._known is None or now - self._known[0] > _KEPT_SECONDS:
            self._known = (now, SupportedFields(MANAGER, await self._read_fields()))
        return self._known[1]
