"""Scale, the body of the subresource `scale`. It is never stored, and no collection has it (`api.scale`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load


def _get_desired(scale: Object, now: float) -> Any:
    return scale["spec"]["replicas"]


def _get_available(scale: Object, now: float) -> Any:
    return scale["status"]["replicas"]


_DEFINITION = "io.k8s.api.autoscaling.v1.Scale"

SCALE = Kind(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    singular="scale",
    namespaced=True,
    definition=_DEFINITION,
    load=partial(load, _DEFINITION),
    columns=(
        cells.NAME,
        Column("Desired", _get_desired, "integer", description="Number of desired replicas"),
        Column("Available", _get_available, "integer", description="Number of available replicas"),
        cells.CUSTOM_AGE,
    ),
)
