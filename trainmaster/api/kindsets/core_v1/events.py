"""Event (core): what happened to an object."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

EVENT = Kind(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    namespaced=True,
    definition="io.k8s.api.core.v1.Event",
    load=partial(load, "io.k8s.api.core.v1.Event"),
    name_form="any",
    short_names=("ev",),
    generation=False,
)
