"""ResourceQuota: limits on the sum over a namespace."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

RESOURCE_QUOTA = Kind(
    group="",
    version="v1",
    kind="ResourceQuota",
    plural="resourcequotas",
    singular="resourcequota",
    namespaced=True,
    definition="io.k8s.api.core.v1.ResourceQuota",
    load=partial(load, "io.k8s.api.core.v1.ResourceQuota"),
    short_names=("quota",),
    status=True,
    generation=False,
)
