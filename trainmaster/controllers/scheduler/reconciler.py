"""One pass over a Pod that has no node yet.

There is one node, `local`. A Pod is bound when its node selector matches the node's labels and it asks for no device
that the node does not list; otherwise its PodScheduled condition says why, in the words of upstream's scheduler.
CPU and memory are not accounted for yet, and a gang is bound Pod by Pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from trainmaster.api.conditions import build_condition, find_condition, list_conditions, set_condition
from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES, PODS
from trainmaster.client.view import View
from trainmaster.client.writes import Patch, Refusal
from trainmaster.controllers.ownership import is_terminating
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import Source, map_to_self

NODE = "local"
SCHEDULER = "default-scheduler"
_REFUSED_FIELDS = ("affinity", "schedulingGates", "topologySpreadConstraints")


def reconcile(view: View, request: Request, now: datetime, refusals: Sequence[Refusal] = ()) -> Plan:
    pod = view.find(PODS, request.namespace, request.name)
    if pod is None or is_terminating(pod) or pod["spec"].get("nodeName"):
        return NOTHING
    if pod["spec"].get("schedulerName", SCHEDULER) != SCHEDULER or _is_over(pod):
        return NOTHING
    problem = refusals[0].error.message if refusals else _find_problem(view, pod)
    if problem is not None:
        return _explain(pod, problem, now)
    meta = pod["metadata"]
    bind = Patch(PODS, meta["namespace"], meta["name"], {"metadata": {"uid": meta["uid"]}, "spec": {"nodeName": NODE}})
    text = f"Successfully assigned {request} to {NODE}"
    return Plan((bind,), None, (Note(pod, "Scheduled", text, action="Binding"),))


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _find_problem(view: View, pod: Object) -> str | None:
    node = view.find(NODES, "", NODE)
    if node is None:
        return "0/0 nodes are available: the node agent has not registered the local node yet."
    refused = [f"spec.{name}" for name in _REFUSED_FIELDS if pod["spec"].get(name)]
    if refused:
        return f"0/1 nodes are available: this version does not carry out {', '.join(refused)}."
    node_labels = node["metadata"].get("labels") or {}
    selector = pod["spec"].get("nodeSelector") or {}
    if any(node_labels.get(key) != value for key, value in selector.items()):
        return "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    offered = (node.get("status") or {}).get("allocatable") or {}
    missing = sorted({name for name in _list_devices(pod) if name not in offered})
    if missing:
        return "0/1 nodes are available: " + ", ".join(f"1 Insufficient {name}" for name in missing) + "."
    return None


def _list_devices(pod: Object) -> Iterable[str]:
    """Extended resources, which are never shared: their names have a domain."""
    for container in pod["spec"].get("containers") or ():
        for side in ("requests", "limits"):
            for name, quantity in ((container.get("resources") or {}).get(side) or {}).items():
                if "/" in name and str(quantity) != "0":
                    yield name


def _explain(pod: Object, problem: str, now: datetime) -> Plan:
    old = find_condition(list_conditions(pod), "PodScheduled")
    if old is not None and old.get("message") == problem:
        return NOTHING
    condition = {**build_condition("PodScheduled", False, "Unschedulable", problem, now), "lastProbeTime": None}
    meta = pod["metadata"]
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    body = {"conditions": set_condition(list_conditions(pod), condition)}
    status = Patch(PODS, meta["namespace"], meta["name"], {"metadata": head, "status": body}, "status")
    return Plan((), status, (Note(pod, "FailedScheduling", problem, warning=True, action="Scheduling"),))


def map_node(view: View, node: Object) -> Iterable[Request]:
    """Every Pod that waits for a node; there is nothing to do for the others."""
    for pod in view.list(PODS):
        if not pod["spec"].get("nodeName") and not _is_over(pod):
            yield Request(pod["metadata"]["namespace"], pod["metadata"]["name"])


CONTROLLER = Controller(
    name="scheduler",
    kind=PODS,
    reconcile=reconcile,
    reporter=SCHEDULER,
    sources=(Source(PODS, map_to_self), Source(NODES, map_node)),
)
