"""Refuses jobs whose Pods are too many for the server, or could never fit the quota of their tenant, by their number,
size or resources.

An admission plugin for TrainJobs and runtimes (so that the author gets the error immediately) and for JobSets and Jobs
(so that it cannot be bypassed). Without it, `numNodes: 100000` would make the server create Pods until the quota is
exceeded. Only the limits of the quota count, not its current usage: a job that fits later is accepted and waits.

Resources are checked when a TrainJob is created, with its runtime and the defaults that its Pods will get.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import orjson

from trainmaster.api import status
from trainmaster.api.admission.trainjobs import find_live_runtime
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields, Object
from trainmaster.api.pods.defaults import default_pod
from trainmaster.api.pods.quotas import Usage, measure_pod
from trainmaster.api.reading import list_items, read_text
from trainmaster.api.resources import JOBS, LIMIT_RANGES, TRAIN_JOBS
from trainmaster.api.tenancy import NAME, NEVER, OBJECT_BYTES, build_raise_advice, describe_amounts
from trainmaster.api.training.counts import count_pods, find_excess
from trainmaster.api.training.references import TRAINJOB_CONTROLLER
from trainmaster.api.training.steps import get_pod, list_jobs
from trainmaster.api.training.template import fill_template
from trainmaster.apiserver.admission.chain import CREATE, DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.admission.limit_ranges import fill_in
from trainmaster.apiserver.admission.quotas import show
from trainmaster.apiserver.admission.tenants import LIMITED, limit_requests, read_hard
from trainmaster.apiserver.admission.trainer import StateLookup
from trainmaster.apiserver.state import RegistryState

_NODES = "spec.trainer.numNodes"
_RESOURCES = "spec.trainer.resourcesPerNode"
_MEASURED = ("requests.", "limits.", "cpu", "memory")
"""Resources of a quota that Pods request."""
_SHARE = 4
"""The Pods of one job may use the tenant's object bytes divided by this."""


class GangSizes(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.tenants.list_gangs is not None and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        list_gangs, hard = attributes.kind.tenants.list_gangs, read_hard(self._state, attributes.namespace)
        if list_gangs is None:
            return
        gangs, gvr = list(list_gangs(attributes.new)), attributes.kind.gvr
        is_trainjob = gvr == TRAIN_JOBS
        # The Pods of a Job are created a few hundred at a time, and its own rules limit their number. What an earlier
        # version has stored can still be changed, for example when it is deleted.
        is_exempt = gvr == JOBS or (attributes.old is not None and _count(list_gangs(attributes.old)) == _count(gangs))
        problem = find_problem(attributes.namespace, gangs, hard) if hard else ""
        if not problem and not is_exempt:
            problem = find_excess(_count(gangs))
        if problem:
            raise _refuse(attributes, problem, _NODES if is_trainjob else "")
        if hard and is_trainjob and attributes.operation is CREATE:
            self._check_resources(attributes, hard)

    def _check_resources(self, attributes: Attributes, hard: Fields) -> None:
        trainjob, namespace = attributes.new, attributes.namespace
        runtime = find_live_runtime(trainjob, StateLookup(self._state))
        runs_here = trainjob["spec"].get("managedBy", TRAINJOB_CONTROLLER) == TRAINJOB_CONTROLLER
        if runtime is None or not runs_here or not any(name.startswith(_MEASURED) for name in hard):
            return
        limits = list_items(self._state.find_shared(LIMIT_RANGES, namespace, NAME), "spec", "limits")
        needed = measure_peak(trainjob, runtime, hard, limits)
        over = {name: show(value, hard[name]) for name, value in needed.items() if value > quantity.parse(hard[name])}
        if not over:
            return
        allowed = {name: hard[name] for name in over}
        text = f"it needs {describe_amounts(over)}, and the tenant may have {describe_amounts(allowed)} at a time"
        raise _refuse(attributes, f"{text}, {NEVER}; {build_raise_advice(namespace, over)}", _RESOURCES)


def _count(gangs: Iterable[tuple[int, Fields]]) -> int:
    return sum(number for number, _ in gangs)


def _refuse(attributes: Attributes, text: str, field: str) -> status.StatusError:
    """`field`: of a TrainJob, to change; "" for objects that controllers create."""
    causes = [{"reason": "FieldValueForbidden", "message": text, "field": field}] if field else []
    return status.forbidden(attributes.kind.gvr, attributes.name, text, causes=causes)


def measure_peak(trainjob: Object, runtime: Object, hard: Fields, limits: Sequence[Fields]) -> Usage:
    """What the Pods of the TrainJob use at the same time, at least, of the resources that the quota limits.

    The Pods of a job start together, and so do the jobs that wait for no other. `limits` is the LimitRange.
    """
    filled = fill_template(trainjob, runtime)
    counts = count_pods(trainjob, runtime, filled)
    in_order = read_text(filled, "startupPolicy", "startupPolicyOrder") == "InOrder"
    first: Usage = {}
    most: Usage = {}
    for number, job in enumerate(list_jobs(filled)):
        starts_first = not job.get("dependsOn") and (number == 0 or not in_order)
        for name, value in _measure_pod(get_pod(job), hard, limits).items():
            usage = value * counts[job["name"]]
            most[name] = max(most.get(name, Fraction(0)), usage)
            if starts_first:
                first[name] = first.get(name, Fraction(0)) + usage
    return {name: max(most[name], first.get(name, Fraction(0))) for name in most if name in hard}


def _measure_pod(spec: Object, hard: Fields, limits: Sequence[Fields]) -> Usage:
    """With what admission adds to the Pod."""
    pod: Object = {"metadata": {}, "spec": spec}
    default_pod(pod)
    limit_requests(pod, [name for name in LIMITED if f"limits.{name}" in hard])
    for limit in limits:
        if limit.get("type") == "Container":
            fill_in(pod, limit)
    return measure_pod(spec)


def find_problem(tenant: str, gangs: list[tuple[int, Fields]], hard: Fields) -> str:
    """Why these Pods can never fit the quota; "" if they can."""
    pods = _count(gangs)
    if "pods" in hard and pods > quantity.parse(hard["pods"]):
        advice = build_raise_advice(tenant, {"pods": str(pods)})
        return f"it needs {pods} Pods, and the tenant may have {hard['pods']} at a time, {NEVER}; {advice}"
    if OBJECT_BYTES not in hard:
        return ""
    most = quantity.parse(hard[OBJECT_BYTES]) / _SHARE
    size = sum(number * len(orjson.dumps(template)) for number, template in gangs if number > 1)
    if size > most:
        advice = build_raise_advice(tenant, {OBJECT_BYTES: str(size * _SHARE)})
        return (
            f"its {pods} Pods would take {size} bytes as objects, and those of one job may take {int(most)}, a "
            f"quarter of the tenant's object bytes, {NEVER}; use fewer Pods, or put large values into a ConfigMap; "
            f"{advice}"
        )
    return ""
