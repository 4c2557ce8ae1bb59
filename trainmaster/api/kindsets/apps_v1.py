"""Deployment: readable only; its objects show the parts of the control plane (`node.host.components`)."""

from __future__ import annotations

from functools import partial

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, Column, Kind
from trainmaster.api.meta import Object
from trainmaster.api.pods.defaults import default_spec
from trainmaster.api.pods.printing import TEMPLATE_COLUMNS
from trainmaster.api.reading import read_status
from trainmaster.api.schemas import load

_SHOWN = (H, "readable; shows a part of the control plane")


def default(deployment: Object) -> None:
    template = deployment.setdefault("spec", {}).setdefault("template", {})
    default_spec(template.setdefault("spec", {}))


def _count(field: str, deployment: Object, now: float) -> int:
    return int(read_status(deployment).get(field, 0))


def _get_ready(deployment: Object, now: float) -> str:
    return f"{_count('readyReplicas', deployment, now)}/{(deployment.get('spec') or {}).get('replicas', 0)}"


DEPLOYMENT = Kind(
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    singular="deployment",
    namespaced=True,
    definition="io.k8s.api.apps.v1.Deployment",
    load=partial(load, "io.k8s.api.apps.v1.Deployment"),
    short_names=("deploy",),
    categories=("all",),
    verbs=READ,
    status=True,
    read_only="Deployments show the parts of the control plane; "
    "to run a program, create a TrainJob, JobSet, Job or Pod",
    columns=(
        cells.NAME,
        Column("Ready", _get_ready, description="Pods that are ready, of those wanted."),
        Column("Up-to-date", partial(_count, "updatedReplicas"), type="integer"),
        Column("Available", partial(_count, "availableReplicas"), type="integer"),
        cells.AGE,
        *TEMPLATE_COLUMNS,
    ),
    default=default,
    # Tenants' namespaces contain none, but without the permission `kubectl get all` would report an error.
    roles={"view": {"": READ, "status": READ}, "tenant": {"": READ}},
    fidelity={**OBJECT, "spec": _SHOWN, "status": H},
)

KINDS = (DEPLOYMENT,)
