"""The scheduler: one pass over the queue of the one node.

A request names the node, not a Pod, because which gangs can start depends on all others. A pass admits whole gangs. The
Pods of a large one are bound in several passes and transactions (docs/decisions/0008); after a crash the rest is bound
first, because a gang with one bound Pod holds the resources for all of them (`ledger`).

Waiting Pods say why: each Pod in its PodScheduled condition, in the words of upstream's scheduler, and one Pod of a
gang in an annotation, which the Job, JobSet and TrainJob copy up to `status.waiting`. The text changes whenever the
queue does; it is updated at most once a second, by a separate request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from trainmaster.api.conditions import build_condition, list_conditions, set_condition
from trainmaster.api.devices import Device, render_lease
from trainmaster.api.labels import DEVICES, WAITING
from trainmaster.api.meta import Object
from trainmaster.api.node_policy import NAME, NAMESPACE, read_node_policy
from trainmaster.api.pods.phases import OVER
from trainmaster.api.pods.requests import GPU
from trainmaster.api.reading import read_status
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, NAMESPACES, NODES, PODS
from trainmaster.api.tenancy import is_tenant
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import Patch, WriteRefusal
from trainmaster.controllers.scheduler.ledger import SCHEDULER, V1_MODELS, Gang, LedgerEntry, SchedulingLedger
from trainmaster.controllers.scheduler.node_room import make_room
from trainmaster.controllers.scheduler.placement import list_unmet
from trainmaster.controllers.scheduler.queue_pass import (
    ENOUGH,
    REFUSED,
    PassResult,
    SchedulingPass,
    SchedulingVerdict,
    VerdictKind,
)
from trainmaster.controllers.scheduler.sentences import describe
from trainmaster.controllers.waiting import Waiting, build_annotation_patch
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, build_patch
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.timeline import Now

NODE = "local"
BIND = Request("", NODE)
REPORT = Request("", f"{NODE}.queue")
"""Updates the texts of waiting Pods. The name is not that of any node."""
REPORT_SECONDS = 1.0
_NO_NODE = "the node agent has not registered the local node yet"
AT_ONCE = 0.001


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    ledger = summarize(view, SchedulingLedger)
    ledger.settle()
    if not ledger.is_anybody_waiting:
        return NOTHING
    teller = _StatusWriter(view, now.wall)
    if refusals:
        return _explain_refusal(ledger, teller, refusals[0])
    found = view.find(NODES, "", NODE)
    if found is None:
        for gang in list(ledger.list_queue())[:ENOUGH]:
            teller.tell(gang, f"0/0 nodes are available: {_NO_NODE}.", _say_stuck(gang, _NO_NODE))
        return teller.build_plan()
    policy = read_node_policy(view.find(CONFIG_MAPS, NAMESPACE, NAME))
    node, room = Node(found), make_room(found, ledger)
    look = SchedulingPass(view, ledger, node, room, policy).run()
    if look.admitted:
        return _bind(view, look, node if policy.approximates_selectors else None)
    for verdict in look.waiting:
        if request == REPORT or _is_news(verdict):
            _tell(view, teller, look, ledger, verdict)
    teller.wake_after(None if look.is_complete else AT_ONCE)
    return teller.build_plan()


def _bind(view: View, look: PassResult, node: Node | None) -> Plan:
    """`node`: if given, unmet selectors of Pods on it were ignored by policy, which is reported in an event."""
    draft = Draft()
    for verdict, devices in look.admitted:
        rest = list(devices)
        for entry in verdict.pods:
            pod = _find_pod(view, entry)
            if pod is None:
                continue
            count = entry.amounts.get(GPU, 0)
            own, rest = rest[:count], rest[count:]
            draft.write(_build_binding(pod, own))
            name = f"{entry.place[0]}/{entry.place[1]}"
            draft.note(pod, "Scheduled", f"Successfully assigned {name} to {NODE}", action="Binding")
            unmet = list_unmet(pod, node) if node is not None else ()
            if unmet:
                text = f"no node has {'; '.join(unmet)}: ignored, as the policy {NAMESPACE}/{NAME} says"
                draft.note(pod, "Approximated", text, action="Binding")
    draft.wake_after(AT_ONCE)
    return draft.build_plan()


def _find_pod(view: View, entry: LedgerEntry) -> Pod | None:
    """The Pod of the entry; None if it is gone or being deleted."""
    found = view.find(PODS, *entry.place)
    pod = Pod(found) if found is not None else None
    return pod if pod is not None and pod.uid == entry.uid and not pod.is_deleting else None


def _build_binding(pod: Pod, devices: Sequence[Device]) -> Patch:
    body: Object = {"spec": {"nodeName": NODE}}
    annotations: dict[str, str | None] = {}
    if WAITING in pod.annotations:
        annotations[WAITING] = None
    if devices:
        annotations[DEVICES] = render_lease(pod.spec, devices)
    if annotations:
        body["metadata"] = {"annotations": annotations}
    # Versioned, so that a device is not leased twice based on an outdated object.
    return build_patch(PODS, pod, body, versioned=bool(devices))


def _tell(
    view: View, teller: _StatusWriter, look: PassResult, ledger: SchedulingLedger, verdict: SchedulingVerdict
) -> None:
    gang = verdict.gang
    match verdict.kind:
        case VerdictKind.GATED:
            teller.tell(gang, verdict.message, None, reason="SchedulingGated")
        case VerdictKind.STUCK:
            text = describe(verdict, look.room, (), apart=_find_apart(view, gang))
            teller.tell(gang, verdict.message, _say_stuck(gang, text))
        case VerdictKind.WAITS:
            text = describe(verdict, look.room, ledger.list_holders(), apart=_find_apart(view, gang))
            teller.tell(gang, verdict.message, Waiting("Queued", text))


def _find_apart(view: View, gang: Gang) -> str:
    """The gang's namespace if it belongs to a tenant: the text then counts jobs of other users instead of naming them.
    Users who can see all namespaces get the names from `explain`."""
    name = gang.label.partition("/")[0]
    namespace = view.find(NAMESPACES, "", name)
    return name if namespace is not None and is_tenant(namespace) else ""


def _say_stuck(gang: Gang, text: str) -> Waiting:
    """Names the Pod if the text is about a Pod."""
    leader = gang.find_leader()
    name = "" if leader is None or text.startswith("the job") else f"Pod {leader[1]} waits: "
    return Waiting("Unschedulable", f"{name}{text}")


def _is_news(verdict: SchedulingVerdict) -> bool:
    """Whether a Pod of the gang still has to be updated."""
    gang = verdict.gang
    is_marked = bool(gang.marked) or verdict.kind is VerdictKind.GATED
    return not is_marked or any(set(part.said) - {verdict.message} for _, part in gang.list_parts())


def _explain_refusal(ledger: SchedulingLedger, teller: _StatusWriter, refusal: WriteRefusal) -> Plan:
    write = refusal.write
    entry = ledger.find_entry((write.namespace, write.name)) if isinstance(write, Patch) else None
    if entry is None:
        return NOTHING
    gang, text = ledger.gangs[entry.gang], f"{REFUSED}{refusal.error.message}"
    teller.tell(gang, text, _say_stuck(gang, text))
    return teller.build_plan()


class _StatusWriter(Draft):
    """Collects the updates of waiting Pods."""

    __slots__ = ("_now", "_view")

    def __init__(self, view: View, now: datetime) -> None:
        super().__init__()
        self._view = view
        self._now = now

    def tell(self, gang: Gang, message: str, waiting: Waiting | None, *, reason: str = "Unschedulable") -> None:
        """Sets `message` on every Pod of the gang, and `waiting` on one of them, for the objects above it."""
        entries = gang.list_waiting()
        leader = gang.find_leader()
        is_large = len(entries) > ENOUGH
        for entry in entries:
            is_leader = entry.place == leader
            if entry.said == message and not is_leader and not entry.is_marked:
                continue
            pod = _find_pod(self._view, entry)
            if pod is None:
                continue
            mark = waiting if is_leader else None
            self.write(build_annotation_patch(PODS, pod, mark, self._now, versioned=True))
            if entry.said != message:
                self._set_condition(pod, reason, message)
                if waiting is not None and (is_leader or not is_large):
                    self.note(pod, "FailedScheduling", message, warning=True, action="Scheduling")

    def _set_condition(self, pod: Pod, reason: str, message: str) -> None:
        condition = {**build_condition("PodScheduled", False, reason, message, self._now), "lastProbeTime": None}
        body = {"status": {"conditions": set_condition(list_conditions(pod.raw), condition)}}
        self.write(build_patch(PODS, pod, body, subresource="status"))


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """Waiting Pods, and Pods that release resources. Most changes are status updates of running Pods."""
    meta = pod["metadata"]
    if not pod["spec"].get("nodeName") or read_status(pod).get("phase") in OVER:
        return (BIND,)
    return () if view.find(PODS, meta["namespace"], meta["name"]) is not None else (BIND,)


def map_to_report(view: View, pod: Object) -> Iterable[Request]:
    """Whenever the queue may have changed: a Pod was created, bound, deleted or has finished."""
    is_new = read_status(pod).get("phase", "Pending") == "Pending"
    return (REPORT,) if is_new or any(map_pod(view, pod)) else ()


def map_any(view: View, obj: Object) -> Iterable[Request]:
    return (BIND,)


def map_node(view: View, node: Object) -> Iterable[Request]:
    return (BIND, REPORT) if node["metadata"]["name"] == NODE else ()


def wait_for_more(view: View, obj: Object) -> float:
    return REPORT_SECONDS


CONTROLLER = Controller(
    name="scheduler",
    kind=NODES,
    reconcile=reconcile,
    reporter=SCHEDULER,
    sources=(
        ChangeSource(PODS, map_pod),
        ChangeSource(PODS, map_to_report, wait_for_more),
        ChangeSource(JOB_SETS, map_any),
        *(ChangeSource(gvr, map_any) for gvr in V1_MODELS),
        ChangeSource(NODES, map_node),
        ChangeSource(CONFIG_MAPS, map_any, only=Request(NAMESPACE, NAME)),
    ),
)
