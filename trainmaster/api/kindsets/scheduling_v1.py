"""PriorityClass: a name for how much a Pod matters."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io",
    version="v1",
    kind="PriorityClass",
    plural="priorityclasses",
    singular="priorityclass",
    namespaced=False,
    definition="io.k8s.api.scheduling.v1.PriorityClass",
    load=partial(load, "io.k8s.api.scheduling.v1.PriorityClass"),
    short_names=("pc",),
)

KINDS = (PRIORITY_CLASS,)
