"""Lease: the current leader and its lease time."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import ALL_VERBS, Column, Kind, UpdateRules
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load


def default(lease: Object) -> None:
    lease.setdefault("spec", {})


def validate(new: Object, old: Object | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    errors: list[FieldError] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(fields.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(fields.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return errors


LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    singular="lease",
    namespaced=True,
    definition="io.k8s.api.coordination.v1.Lease",
    load=partial(load, "io.k8s.api.coordination.v1.Lease"),
    columns=(
        cells.NAME,
        Column("Holder", lambda lease, now: (lease.get("spec") or {}).get("holderIdentity", "")),
        cells.AGE,
    ),
    default=default,
    validate=validate,
    generation=False,
    updates=UpdateRules(creates=True, needs_version=True),
    roles={"edit": {"": ALL_VERBS}},
    fidelity={**OBJECT, "spec": H},
)

KINDS = (LEASE,)
