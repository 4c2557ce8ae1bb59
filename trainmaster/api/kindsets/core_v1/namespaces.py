"""Namespace: the life cycle of everything in it ends with it."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import ALL_VERBS, Kind
from trainmaster.api.schemas import load

NAMESPACE = Kind(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    singular="namespace",
    namespaced=False,
    definition="io.k8s.api.core.v1.Namespace",
    load=partial(load, "io.k8s.api.core.v1.Namespace"),
    name_form="label",
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    status=True,
)
