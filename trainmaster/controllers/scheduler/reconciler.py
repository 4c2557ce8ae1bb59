"""One pass over a Pod that has no node yet.

There is one node, `local`. A Pod is bound when it suits the node (`placement`); otherwise its PodScheduled condition
says why, in the words of upstream's scheduler, and an annotation says what would match, for the TrainJob's
`status.waiting`. A Pod with scheduling gates waits until they are gone. CPU and memory are not accounted for yet, and a
gang is bound Pod by Pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from trainmaster.api.conditions import build_condition, find_condition, list_conditions, set_condition
from trainmaster.api.labels import WAITING
from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES, PODS
from trainmaster.client.view import View
from trainmaster.client.writes import Patch, Refusal
from trainmaster.controllers.ownership import is_terminating
from trainmaster.controllers.scheduler.placement import Misfit, find_misfit
from trainmaster.controllers.waiting import Waiting, build_annotation_patch
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import Source, map_to_self
from trainmaster.kit.timeline import Now

NODE = "local"
SCHEDULER = "default-scheduler"
_NO_NODE = "the node agent has not registered the local node yet"
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[Refusal] = ()) -> Plan:
    pod = view.find(PODS, request.namespace, request.name)
    if pod is None or is_terminating(pod) or pod["spec"].get("nodeName"):
        return NOTHING
    if pod["spec"].get("schedulerName", SCHEDULER) != SCHEDULER or _is_over(pod):
        return NOTHING
    if pod["spec"].get("schedulingGates"):
        return Plan((), _build_status(pod, "SchedulingGated", _GATED, now.wall))
    misfit = _find_misfit(view, pod, refusals)
    if misfit is not None:
        return _explain(pod, misfit, now.wall)
    meta = pod["metadata"]
    head: Object = {"uid": meta["uid"]}
    if WAITING in (meta.get("annotations") or {}):
        head["annotations"] = {WAITING: None}
    bind = Patch(PODS, meta["namespace"], meta["name"], {"metadata": head, "spec": {"nodeName": NODE}})
    text = f"Successfully assigned {request} to {NODE}"
    return Plan((bind,), None, (Note(pod, "Scheduled", text, action="Binding"),))


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _find_misfit(view: View, pod: Object, refusals: Sequence[Refusal]) -> Misfit | None:
    if refusals:
        return Misfit(refusals[0].error.message, refusals[0].error.message)
    node = view.find(NODES, "", NODE)
    if node is None:
        return Misfit(f"0/0 nodes are available: {_NO_NODE}.", _NO_NODE)
    return find_misfit(pod, node)


def _explain(pod: Object, misfit: Misfit, now: datetime) -> Plan:
    meta = pod["metadata"]
    waiting = Waiting("Unschedulable", f"Pod {meta['name']} waits: {misfit.hint}")
    patch = build_annotation_patch(pod, waiting, now)
    # The first write of the two tells whether the view was stale; the second follows only when it was not.
    status = _build_status(pod, "Unschedulable", misfit.message, now, is_first=patch is None)
    note = Note(pod, "FailedScheduling", misfit.message, warning=True, action="Scheduling")
    notes = () if status is None else (note,)
    if patch is None:
        return Plan((), status, notes)
    patch["metadata"]["resourceVersion"] = meta["resourceVersion"]
    return Plan((Patch(PODS, meta["namespace"], meta["name"], patch),), status, notes)


def _build_status(pod: Object, reason: str, message: str, now: datetime, *, is_first: bool = True) -> Patch | None:
    old = find_condition(list_conditions(pod), "PodScheduled")
    if old is not None and (old.get("reason"), old.get("message")) == (reason, message):
        return None
    condition = {**build_condition("PodScheduled", False, reason, message, now), "lastProbeTime": None}
    meta = pod["metadata"]
    head = {"uid": meta["uid"], **({"resourceVersion": meta["resourceVersion"]} if is_first else {})}
    body = {"conditions": set_condition(list_conditions(pod), condition)}
    return Patch(PODS, meta["namespace"], meta["name"], {"metadata": head, "status": body}, "status")


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """Most changes of Pods concern those that have a node."""
    return () if pod["spec"].get("nodeName") else map_to_self(view, pod)


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
    sources=(Source(PODS, map_pod), Source(NODES, map_node)),
)
