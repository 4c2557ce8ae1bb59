"""One pass over a TrainJob.

Reads: the TrainJob, its runtime or the snapshot of it, its JobSet. Writes: the snapshot, the JobSet, the TrainJob's
status. Terminal is terminal: once Complete or Failed is stored, no child is made any more, and the status only follows
what is left of the JobSet. Runs unchanged on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Patch, Refusal, Write
from trainmaster.controllers.ownership import is_owned_by, is_terminating
from trainmaster.controllers.trainjob.children import build_jobset, find_unsupported
from trainmaster.controllers.trainjob.runtimes import find_runtime_gvr, resolve_runtime
from trainmaster.controllers.trainjob.status import build_status, is_finished
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import Source, map_to_owner, map_to_self

MANAGER = "trainer.kubeflow.org/trainjob-controller"
EVENT_REASON = "TrainJobResourcesCreationFailed"
EVENT_PREFIX = "TrainJob resources reconciliation failed: "
EVENT_LIMIT = 950
"""Upstream cuts the error in its event after this many bytes."""


def reconcile(view: View, request: Request, now: datetime, refusals: Sequence[Refusal] = ()) -> Plan:
    trainjob = view.find(TRAIN_JOBS, request.namespace, request.name)
    if trainjob is None or is_terminating(trainjob):
        return NOTHING
    if trainjob["spec"].get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    jobset = view.find(JOB_SETS, request.namespace, request.name)
    own = jobset if jobset is not None and is_owned_by(jobset, trainjob["metadata"]["uid"]) else None
    if is_finished(trainjob):
        return _finish(trainjob, own, (), None, now)
    if refusals:
        return _finish(trainjob, own, (), _explain(refusals[0]), now)
    if own is not None:
        return _finish(trainjob, own, _toggle_suspend(trainjob, own), None, now)
    if jobset is not None:
        return _finish(trainjob, None, (), _explain_foreign(jobset), now)
    writes = _build_children(view, trainjob)
    if isinstance(writes, Waiting):
        return _finish(trainjob, None, (), writes, now)
    return _finish(trainjob, None, writes, None, now)


def _build_children(view: View, trainjob: Object) -> Sequence[Write] | Waiting:
    runtime = resolve_runtime(view, trainjob)
    if isinstance(runtime, Waiting):
        return runtime
    unsupported = find_unsupported(trainjob, runtime.obj)
    if unsupported is not None:
        return unsupported
    jobset = build_jobset(trainjob, runtime.obj)
    if isinstance(jobset, Waiting):
        return jobset
    create = Create(JOB_SETS, jobset)
    return (create,) if runtime.snapshot is None else (runtime.snapshot, create)


def _toggle_suspend(trainjob: Object, jobset: Object) -> Sequence[Write]:
    want = bool(trainjob["spec"].get("suspend"))
    if is_terminating(jobset) or bool(jobset["spec"].get("suspend")) == want:
        return ()
    meta = jobset["metadata"]
    patch = {"metadata": {"uid": meta["uid"]}, "spec": {"suspend": want}}
    return (Patch(JOB_SETS, meta["namespace"], meta["name"], patch),)


def _explain(refusal: Refusal) -> Waiting:
    return Waiting("Refused", refusal.error.message)


def _explain_foreign(jobset: Object) -> Waiting:
    name = jobset["metadata"]["name"]
    text = f'a JobSet "{name}" exists that does not belong to this TrainJob; delete or rename one of the two'
    return Waiting("NameConflict", text)


def _finish(
    trainjob: Object, jobset: Object | None, writes: Sequence[Write], waiting: Waiting | None, now: datetime
) -> Plan:
    """Adds the status patch, and an event when the reason for waiting is news."""
    before = trainjob.get("status") or {}
    after = build_status(trainjob, jobset, waiting, now)
    notes: tuple[Note, ...] = ()
    if waiting is not None and (before.get("waiting") or {}).get("message") != waiting.message:
        notes = (Note(trainjob, EVENT_REASON, _cut(EVENT_PREFIX, waiting.message), warning=True),)
    if after == before:
        return Plan(tuple(writes), None, notes)
    meta = trainjob["metadata"]
    body: Object = {key: after.get(key) for key in {*before, *after} if before.get(key) != after.get(key)}
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    status = Patch(TRAIN_JOBS, meta["namespace"], meta["name"], {"metadata": head, "status": body}, "status")
    return Plan(tuple(writes), status, notes)


def _cut(prefix: str, text: str) -> str:
    raw = text.encode()
    return prefix + (text if len(raw) <= EVENT_LIMIT else raw[:EVENT_LIMIT].decode(errors="ignore") + " ...")


def map_runtime(view: View, runtime: Object) -> Iterable[Request]:
    """TrainJobs that wait for this very runtime."""
    name = runtime["metadata"]["name"]
    namespace = runtime["metadata"].get("namespace", "")
    for trainjob in view.list(TRAIN_JOBS, namespace):
        reason = ((trainjob.get("status") or {}).get("waiting") or {}).get("reason")
        reference = trainjob["spec"]["runtimeRef"]
        gvr = TRAINING_RUNTIMES if namespace else CLUSTER_TRAINING_RUNTIMES
        if reason == "RuntimeNotFound" and reference["name"] == name and find_runtime_gvr(reference) == gvr:
            yield Request(trainjob["metadata"]["namespace"], trainjob["metadata"]["name"])


CONTROLLER = Controller(
    name="trainjob",
    kind=TRAIN_JOBS,
    reconcile=reconcile,
    reporter="trainer-trainjob-controller",
    sources=(
        Source(TRAIN_JOBS, map_to_self),
        Source(JOB_SETS, map_to_owner("TrainJob")),
        Source(TRAINING_RUNTIMES, map_runtime),
        Source(CLUSTER_TRAINING_RUNTIMES, map_runtime),
    ),
)
