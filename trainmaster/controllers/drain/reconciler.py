"""Suspends the jobs of a drained machine, and resumes them when it is not drained any more. One controller per kind.

Each pass decides from stored objects alone: the Node says whether the machine is drained (`jobs.draining`), and a mark
on a job that the drain has suspended it. So a crash anywhere leaves something that the next pass continues.

    drained, the job has Pods on the machine               suspended and marked
    drained, marked, but a person has resumed it           the mark goes; its new Pods wait like all others
    not drained, marked                                    resumed, and the mark goes
    suspended without a mark: by a person                  it loses its place in the queue

What waits in the queue is left alone: nothing is bound to a drained machine, so it keeps its place. A job that ran gets
a mark for the scheduler, with which it comes before those that have not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

from trainmaster.api.labels import KEEPS_PLACE, SUSPENDED_BY_DRAIN
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import NODES
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.drain.kinds import DRAINED_KINDS, Drainable, DrainedKind, has_pod_on_machine
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, build_patch
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, find_owner_kind
from trainmaster.jobs.draining import DRAIN_ANNOTATIONS, NODE
from trainmaster.jobs.models.nodes import Drain, Node
from trainmaster.kit.timeline import Now

REPORTER = "trainmaster-drain"
LATE_SECONDS = 5.0
"""How long after the beginning of a drain a Pod may still be bound, by a pass of the scheduler that saw the Node as it
was before."""


class OpenJobs:
    """Summary of a view: the jobs that have not ended, by kind, and which of them a drain has suspended."""

    gvrs: ClassVar[tuple[GVR, ...]] = tuple(kind.gvr for kind in DRAINED_KINDS)
    counts_at_rest: ClassVar[bool] = False

    def __init__(self) -> None:
        self._kinds = {kind.gvr: kind for kind in DRAINED_KINDS}
        self._marked: dict[GVR, dict[Request, bool]] = {kind.gvr: {} for kind in DRAINED_KINDS}

    def list_names(self, gvr: GVR, *, marked: bool) -> list[Request]:
        """`marked`: only those that a drain has suspended."""
        return [name for name, is_marked in self._marked[gvr].items() if is_marked or not marked]

    def put(self, gvr: GVR, obj: Object) -> None:
        meta = obj["metadata"]
        name = Request(meta["namespace"], meta["name"])
        if is_open(self._kinds[gvr], obj):
            self._marked[gvr][name] = SUSPENDED_BY_DRAIN in read_annotations(obj)
        else:
            self._marked[gvr].pop(name, None)

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        self._marked[gvr].pop(Request(namespace, name), None)


def is_open(kind: DrainedKind, obj: Object) -> bool:
    job = kind.model(obj)
    if not kind.is_training and job.controller is not None:
        return False
    return not job.is_finished and not job.is_deleting


def find_drain(view: View) -> Drain | None:
    node = view.find(NODES, "", NODE)
    return None if node is None else Node(node).drain


def reconcile(
    view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = (), *, kind: DrainedKind
) -> Plan:
    found = view.find(kind.gvr, request.namespace, request.name)
    if found is None or not is_open(kind, found):
        return NOTHING
    job = kind.model(found)
    draft = Draft()
    if refusals:
        draft.note(job, "DrainFailed", f"it could not be changed: {refusals[0].error.message}", warning=True)
        return draft.build_plan()
    drain = find_drain(view)
    is_marked = SUSPENDED_BY_DRAIN in job.annotations
    if job.is_suspended:
        if is_marked and drain is None:
            patch = {**kind.build_suspension(False), "metadata": {"annotations": {SUSPENDED_BY_DRAIN: None}}}
            # Versioned: a person may have taken the mark away, so that the job stays suspended.
            draft.write(build_patch(kind.gvr, job, patch, versioned=True))
            draft.note(job, "ResumedAfterDrain", "the machine is back in use")
        elif not is_marked:
            _forget_place(draft, kind, view, job)
    elif is_marked:
        draft.write(build_patch(kind.gvr, job, {"metadata": {"annotations": {SUSPENDED_BY_DRAIN: None}}}))
    elif drain is not None:
        if has_pod_on_machine(kind.list_pods(view, job)):
            _suspend(draft, kind, view, job, drain)
        else:
            draft.wake_after(_find_wait(job, drain, now))
    return draft.build_plan()


def _find_wait(job: Drainable, drain: Drain, now: Now) -> float | None:
    try:
        left = now.left(job.uid, "drained", drain.since, LATE_SECONDS)
    except ValueError:
        return None  # somebody has edited the annotation
    return left if left > 0 else None


def _suspend(draft: Draft, kind: DrainedKind, view: View, job: Drainable, drain: Drain) -> None:
    marks = {SUSPENDED_BY_DRAIN: drain.since}
    gang = kind.find_gang(view, job)
    if gang is not None:
        gvr, holder, shape = gang
        if holder.uid == job.uid:
            marks[KEEPS_PLACE] = shape.since
        elif holder.annotations.get(KEEPS_PLACE) != shape.since:
            # Before the job, so that it has its place whenever it is resumed.
            draft.write(build_patch(gvr, holder, {"metadata": {"annotations": {KEEPS_PLACE: shape.since}}}))
    patch = {**kind.build_suspension(True), "metadata": {"annotations": marks}}
    draft.write(build_patch(kind.gvr, job, patch, versioned=True))
    draft.note(job, "SuspendedByDrain", f"the machine is {drain.describe(discreet=True)}: asked to save and stop")


def _forget_place(draft: Draft, kind: DrainedKind, view: View, job: Drainable) -> None:
    gang = kind.find_gang(view, job)
    if gang is not None and KEEPS_PLACE in gang[1].annotations:
        draft.write(build_patch(gang[0], gang[1], {"metadata": {"annotations": {KEEPS_PLACE: None}}}))


def reconcile_node(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    """Somebody has uncordoned a drained node, which ends the drain: without the annotations, the next cordon is only a
    cordon."""
    found = view.find(NODES, request.namespace, request.name)
    if found is None or refusals:
        return NOTHING
    node = Node(found)
    known = [key for key in DRAIN_ANNOTATIONS if key in node.annotations]
    if not known or node.is_cordoned or node.is_deleting:
        return NOTHING
    draft = Draft()
    patch = {"metadata": {"annotations": dict.fromkeys(known)}}
    draft.write(build_patch(NODES, node, patch, versioned=True))
    return draft.build_plan()


def map_job(kind: DrainedKind, view: View, obj: Object) -> Iterable[Request]:
    """All while the machine is drained, otherwise only suspended ones."""
    if not kind.is_training and find_owner_kind(obj):
        return
    if kind.model(obj).is_suspended or SUSPENDED_BY_DRAIN in read_annotations(obj) or find_drain(view) is not None:
        yield Request(obj["metadata"]["namespace"], obj["metadata"]["name"])


def map_node(kind: DrainedKind, view: View, node: Object) -> Iterable[Request]:
    if node["metadata"]["name"] != NODE:
        return ()
    return summarize(view, OpenJobs).list_names(kind.gvr, marked=find_drain(view) is None)


def map_own_node(view: View, node: Object) -> Iterable[Request]:
    return (Request("", NODE),) if node["metadata"]["name"] == NODE else ()


def build_controller(kind: DrainedKind) -> Controller:
    return Controller(
        name=f"drain-{kind.name}",
        kind=kind.gvr,
        reconcile=partial(reconcile, kind=kind),
        sources=(
            ChangeSource(kind.gvr, partial(map_job, kind)),
            ChangeSource(NODES, partial(map_node, kind), fans_out=True),
        ),
        reporter=REPORTER,
    )


NODE_CONTROLLER = Controller(
    name="drain-nodes",
    kind=NODES,
    reconcile=reconcile_node,
    sources=(ChangeSource(NODES, map_own_node),),
    reporter=REPORTER,
)
CONTROLLERS = (NODE_CONTROLLER, *map(build_controller, DRAINED_KINDS))
