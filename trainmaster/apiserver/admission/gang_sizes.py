"""In a tenant's namespace no job is let in whose Pods the tenant could never have: too many, or too many bytes.

An admission plugin for TrainJobs and runtimes (so that the author is told at once) and for JobSets and Jobs (so that
nothing gets around it). Without it a request of a few bytes, `numNodes: 100000`, would have the server build as many
Pods before the quota refuses the first one too many.
"""

from __future__ import annotations

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields
from trainmaster.api.tenancy import OBJECT_BYTES, build_raise_advice
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.admission.tenants import read_hard
from trainmaster.apiserver.state import RegistryState

_SHARE = 4
"""The Pods of one job may take this part of the tenant's object bytes."""


class GangSizes(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.tenants.list_gangs is not None and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        list_gangs, hard = attributes.kind.tenants.list_gangs, read_hard(self._state, attributes.namespace)
        if list_gangs is None or not hard:
            return
        problem = find_problem(attributes.namespace, list(list_gangs(attributes.new)), hard)
        if problem:
            raise status.forbidden(attributes.kind.gvr, attributes.name, problem)


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
