"""Lease: who leads, and until when."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    singular="lease",
    namespaced=True,
    definition="io.k8s.api.coordination.v1.Lease",
    load=partial(load, "io.k8s.api.coordination.v1.Lease"),
    generation=False,
)

KINDS = (LEASE,)
