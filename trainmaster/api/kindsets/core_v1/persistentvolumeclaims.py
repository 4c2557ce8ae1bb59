"""PersistentVolumeClaim: storage that outlives Pods."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

PERSISTENT_VOLUME_CLAIM = Kind(
    group="",
    version="v1",
    kind="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    singular="persistentvolumeclaim",
    namespaced=True,
    definition="io.k8s.api.core.v1.PersistentVolumeClaim",
    load=partial(load, "io.k8s.api.core.v1.PersistentVolumeClaim"),
    short_names=("pvc",),
    status=True,
    generation=False,
)
