"""JobSet: a group of Jobs that live and fail together."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

JOB_SET = Kind(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    singular="jobset",
    namespaced=True,
    definition="io.x-k8s.jobset.v1alpha2.JobSet",
    load=partial(load, "io.x-k8s.jobset.v1alpha2.JobSet"),
    custom=True,
    status=True,
)

KINDS = (JOB_SET,)
