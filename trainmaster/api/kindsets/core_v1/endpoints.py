"""Endpoints: the addresses behind a Service."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

ENDPOINTS = Kind(
    group="",
    version="v1",
    kind="Endpoints",
    plural="endpoints",
    singular="endpoints",
    namespaced=True,
    definition="io.k8s.api.core.v1.Endpoints",
    load=partial(load, "io.k8s.api.core.v1.Endpoints"),
    short_names=("ep",),
)
