"""Job: Pods that run to completion."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

JOB = Kind(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    singular="job",
    namespaced=True,
    definition="io.k8s.api.batch.v1.Job",
    load=partial(load, "io.k8s.api.batch.v1.Job"),
    categories=("all",),
    status=True,
)

KINDS = (JOB,)
