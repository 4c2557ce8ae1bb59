"""Refuses jobs of a tenant whose Pods could never fit its quota, by their number or size.

An admission plugin for TrainJobs and runtimes (so that the author gets the error immediately) and for JobSets and Jobs
(so that it cannot be bypassed). Without it, `numNodes: 100000` would make the server create Pods until the quota is
exceeded.
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
"""The Pods of one job may use the tenant's object bytes divided by this."""


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
    """Why these Pods can never fit the quota; "" if they can."""
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
