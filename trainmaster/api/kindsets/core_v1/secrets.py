"""Secret: data that is shown to few."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

SECRET = Kind(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    singular="secret",
    namespaced=True,
    definition="io.k8s.api.core.v1.Secret",
    load=partial(load, "io.k8s.api.core.v1.Secret"),
    generation=False,
)
