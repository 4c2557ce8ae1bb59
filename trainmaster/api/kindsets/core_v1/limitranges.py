"""LimitRange: defaults and bounds for single objects of a namespace."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

LIMIT_RANGE = Kind(
    group="",
    version="v1",
    kind="LimitRange",
    plural="limitranges",
    singular="limitrange",
    namespaced=True,
    definition="io.k8s.api.core.v1.LimitRange",
    load=partial(load, "io.k8s.api.core.v1.LimitRange"),
    short_names=("limits",),
    generation=False,
)
