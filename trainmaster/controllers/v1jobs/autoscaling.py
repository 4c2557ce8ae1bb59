"""The HorizontalPodAutoscaler of an elastic PyTorchJob with `metrics` on a cluster, as upstream creates it. Pure.

On one machine there is none, because nothing measures the load of Pods there.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.v1jobs.frameworks import API_VERSION
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.v1jobs.variables import read_bounds
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.v1jobs import V1Job

_AMOUNTS = ("value", "averageValue")


def build_autoscaler(job: V1Job) -> Object | None:
    """None if the job does not ask for one."""
    metrics = read_fields(job.spec, "elasticPolicy").get("metrics")
    if metrics is None:
        return None
    least, most = read_bounds(job)
    target = {"apiVersion": API_VERSION, "kind": job.framework.kind, "name": job.name}
    spec: Object = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}
    if metrics:
        # Otherwise the server sets its default, which must not count as a difference.
        spec["metrics"] = metrics
    meta = {"name": job.name, "namespace": job.namespace, "ownerReferences": [build_owner_reference(job.raw)]}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


def build_change(autoscaler: ObjectModel, wanted: Object) -> Object:
    """The merge patch of an autoscaler that exists; empty if it is up to date."""
    spec = wanted["spec"]
    before = {name: autoscaler.spec.get(name) for name in spec}
    return {} if _normalize(before) == _normalize(spec) else {"spec": spec}


def _normalize(value: Any, name: str = "") -> Any:
    """With amounts as numbers, because the server writes `1` where a job says `1000m`."""
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    if isinstance(value, dict):
        return {key: _normalize(item, key) for key, item in value.items()}
    return quantity.parse(value) if name in _AMOUNTS and quantity.is_valid(value) else value
