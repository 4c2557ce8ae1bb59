"""PodMetrics and NodeMetrics: current usage, measured for every request and never stored."""

from __future__ import annotations

from functools import partial

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, Column, Kind, RoleGrants
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load

GROUP = "metrics.k8s.io"
_DEFINITIONS = "io.k8s.metrics.pkg.apis.metrics.v1beta1."


def _sum_usage(obj: Object, resource: str) -> int:
    """In thousandths."""
    parts = [container["usage"] for container in obj.get("containers", [])] or [obj.get("usage", {})]
    return int(sum(quantity.parse(part.get(resource, "0")) for part in parts) * 1000)


def _build_kind(kind: str, plural: str, field: str, roles: RoleGrants, *, namespaced: bool) -> Kind:
    """`field`: the field that contains the usage."""
    return Kind(
        group=GROUP,
        version="v1beta1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        definition=_DEFINITIONS + kind,
        load=partial(load, _DEFINITIONS + kind),
        verbs=("get", "list"),
        columns=(
            cells.NAME,
            Column("CPU", lambda obj, now: f"{_sum_usage(obj, 'cpu')}m"),
            Column("Memory", lambda obj, now: f"{_sum_usage(obj, 'memory') // 1024_000}Ki"),
            Column("Window", lambda obj, now: obj.get("window", "")),
        ),
        generation=False,
        measured=True,
        roles=roles,
        fidelity={**OBJECT, field: H, "timestamp": H, "window": H},
    )


NODE_METRICS = _build_kind("NodeMetrics", "nodes", "usage", {"view": {"": READ}}, namespaced=False)
POD_METRICS = _build_kind(
    "PodMetrics", "pods", "containers", {"view": {"": READ}, "tenant": {"": READ}}, namespaced=True
)

KINDS = (NODE_METRICS, POD_METRICS)
