"""Pod: what the node runs."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind, Subresource
from trainmaster.api.schemas import load

POD = Kind(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    singular="pod",
    namespaced=True,
    definition="io.k8s.api.core.v1.Pod",
    load=partial(load, "io.k8s.api.core.v1.Pod"),
    short_names=("po",),
    categories=("all",),
    status=True,
    subresources=(Subresource("log", ("get",), version="v1", kind="Pod"),),
)
