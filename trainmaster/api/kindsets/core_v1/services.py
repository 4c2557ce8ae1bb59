"""Service: a stable name in front of Pods."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

SERVICE = Kind(
    group="",
    version="v1",
    kind="Service",
    plural="services",
    singular="service",
    namespaced=True,
    definition="io.k8s.api.core.v1.Service",
    load=partial(load, "io.k8s.api.core.v1.Service"),
    name_form="label",
    short_names=("svc",),
    categories=("all",),
    status=True,
)
