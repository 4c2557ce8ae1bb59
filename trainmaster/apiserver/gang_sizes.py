"""In a tenant's namespace no job is let in whose Pods the tenant could never have: too many, or too many bytes.

An admission plugin for TrainJobs and runtimes (so that the author is told at once) and for JobSets and Jobs (so that
nothing gets around it). Without it a request of a few bytes, `numNodes: 100000`, would have the server build as many
Pods before the quota refuses the first one too many.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from trainmaster.api import quantity, status
from trainmaster.api.kinds import Kind
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields, read_spec
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.tenancy import NAME, OBJECT_BYTES, build_raise_advice
from trainmaster.apiserver.admission import AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.state import RegistryState

_KINDS = (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS)
_SHARE = 4
"""The Pods of one job may take this part of the tenant's object bytes."""


class GangSizes(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind) -> bool:
        return kind.gvr in _KINDS

    def validate(self, attributes: Attributes) -> None:
        if attributes.new is None or attributes.subresource or attributes.operation is AdmissionOperation.DELETE:
            return
        record = self._state.store.get("resourcequotas", f"{attributes.namespace}/{NAME}")
        if record is None:
            return
        hard = read_fields(self._state.parsed.get(record), "spec", "hard")
        problem = find_problem(attributes.namespace, list(list_gangs(attributes.kind, attributes.new)), hard)
        if problem:
            raise status.forbidden(attributes.kind.gvr, attributes.name, problem)


def list_gangs(kind: Kind, obj: Fields) -> Iterator[tuple[int, Fields]]:
    """(Pods, what each is made from), for every job in the object."""
    spec = read_spec(obj)
    if kind.gvr == TRAIN_JOBS:
        # All that stands in a TrainJob may end up in every one of its Pods.
        yield int(read_fields(spec, "trainer").get("numNodes") or 1), {**spec, "metadata": obj["metadata"]}
    elif kind.gvr == JOBS:
        yield int(spec.get("parallelism") or 1), read_fields(spec, "template")
    elif kind.gvr == JOB_SETS:
        yield from _list_replicated(spec)
    else:
        yield int(read_fields(spec, "mlPolicy").get("numNodes") or 1), {}
        yield from _list_replicated(read_fields(spec, "template", "spec"))


def _list_replicated(spec: Fields) -> Iterator[tuple[int, Fields]]:
    for job in list_items(spec, "replicatedJobs"):
        template = read_fields(job, "template", "spec")
        yield int(job.get("replicas") or 1) * int(template.get("parallelism") or 1), read_fields(template, "template")


def find_problem(tenant: str, gangs: list[tuple[int, Fields]], hard: Fields) -> str:
    """Why the tenant could never have these Pods; "" when it could."""
    pods = sum(number for number, _ in gangs)
    if "pods" in hard and pods > quantity.parse(hard["pods"]):
        advice = build_raise_advice(tenant, {"pods": str(pods)})
        return f"it needs {pods} Pods, and the tenant may have {hard['pods']} at a time; {advice}"
    if OBJECT_BYTES not in hard:
        return ""
    most = quantity.parse(hard[OBJECT_BYTES]) / _SHARE
    size = sum(number * len(orjson.dumps(template)) for number, template in gangs if number > 1)
    if size > most:
        advice = build_raise_advice(tenant, {OBJECT_BYTES: str(size * _SHARE)})
        return (
            f"its {pods} Pods would take {size} bytes as objects, and those of one job may take {int(most)}, a "
            f"quarter of the tenant's object bytes; use fewer Pods, or put large values into a ConfigMap; {advice}"
        )
    return ""
