"""Event (events.k8s.io): the newer spelling of the core Event, on the same stored objects."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.meta import GVR
from trainmaster.api.schemas import load

EVENT = Kind(
    group="events.k8s.io",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    namespaced=True,
    definition="io.k8s.api.events.v1.Event",
    load=partial(load, "io.k8s.api.events.v1.Event"),
    name_form="any",
    short_names=("ev",),
    generation=False,
    storage=GVR("", "v1", "events"),
)

KINDS = (EVENT,)
