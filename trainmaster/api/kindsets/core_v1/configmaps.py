"""ConfigMap: plain data for Pods."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

CONFIG_MAP = Kind(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    singular="configmap",
    namespaced=True,
    definition="io.k8s.api.core.v1.ConfigMap",
    load=partial(load, "io.k8s.api.core.v1.ConfigMap"),
    short_names=("cm",),
    generation=False,
)
