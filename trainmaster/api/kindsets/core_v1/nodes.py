"""Node: the machine, as clients see it."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

NODE = Kind(
    group="",
    version="v1",
    kind="Node",
    plural="nodes",
    singular="node",
    namespaced=False,
    definition="io.k8s.api.core.v1.Node",
    load=partial(load, "io.k8s.api.core.v1.Node"),
    short_names=("no",),
    status=True,
    generation=False,
)
