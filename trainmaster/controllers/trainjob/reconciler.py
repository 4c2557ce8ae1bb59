"""One pass over a TrainJob.

Reads: the TrainJob, its runtime or the snapshot of it, its JobSet, the objects its framework needs. Writes: those, and
the TrainJob's status. Terminal is terminal: once Complete or Failed is stored, no child is made any more, and the
status only follows what is left of the JobSet. Runs unchanged on a cluster.

Ownership is by uid: an object of the right name that belongs to somebody else is never touched, and `status.waiting`
says so. What retrying cannot help ends there too, so nothing loops without a reason to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    JOB_SETS,
    JOBS,
    SECRETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.training import overrides, restarts
from trainmaster.api.training.steps import find_policy, get_runtime_spec
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import Create, Delete, Patch, Write, WriteRefusal
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.trainjob import attempts, deadline, suspension, verdict
from trainmaster.controllers.trainjob.children import build_children
from trainmaster.controllers.trainjob.companions import plan_companions
from trainmaster.controllers.trainjob.runtimes import FoundRuntime, MissingRuntimes, resolve_runtime
from trainmaster.controllers.trainjob.status import build_status, fail, is_told
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_owner, map_to_self
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

MANAGER = "trainer.kubeflow.org/trainjob-controller"
EVENT_REASON = "TrainJobResourcesCreationFailed"
EVENT_PREFIX = "TrainJob resources reconciliation failed: "
EVENT_LIMIT = 950
"""Upstream cuts the error in its event after this many bytes."""
REMARK_REASON = "NotAsAsked"
POD_GROUPS = (COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS)
MISSING = "JobSetMissing"
TERMINATING = "JobSetTerminating"
RESTARTING = "Restarting"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a pass wants to do, before the status is added."""

    writes: tuple[Write, ...] = ()
    waiting: Waiting | None = None
    remarks: tuple[str, ...] = ()
    suspended: bool | None = None
    """Whether the JobSet is suspended once the writes are done; None: as the TrainJob asks."""
    failure: Fields | None = None
    """The first of the newest attempt that had one."""
    began: str = ""
    """When the present attempt began."""


def reconcile(
    context: FrameworkContext, view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()
) -> Plan:
    found = view.find(TRAIN_JOBS, request.namespace, request.name)
    if found is None:
        return NOTHING
    trainjob = TrainJob(found)
    if trainjob.is_deleting or trainjob.spec.get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    jobset = _find_jobset(view, trainjob)
    own = jobset if jobset is not None and jobset.is_owned_by(trainjob.uid) else None
    if trainjob.is_finished:
        return _follow_end(trainjob, own, now)
    runtime = resolve_runtime(view, trainjob)
    left = deadline.find_time_left(trainjob, runtime.obj if isinstance(runtime, FoundRuntime) else None, now)
    if left is not None and left <= 0:
        note = Note(trainjob.raw, deadline.REASON, deadline.MESSAGE, warning=True)
        return _report(trainjob, fail(trainjob, deadline.REASON, deadline.MESSAGE, now.wall), notes=(note,))
    failure = None if own is None else verdict.find_failure(view, trainjob, own)
    pause = 0.0 if own is None else verdict.get_pause(view, own, failure, now)
    if pause > 0:
        return Plan(requeue_after=pause)
    if refusals:
        outcome = _explain_refusal(refusals[0], own)
    elif own is not None:
        outcome = _keep(context, view, trainjob, own, runtime)
    elif jobset is not None:
        outcome = _Outcome(waiting=_explain_foreign(jobset))
    else:
        outcome = _start(context, view, trainjob, runtime)
    began = attempts.find_beginning(view, trainjob, own)
    return _finish(trainjob, own, replace(outcome, failure=failure, began=began), now, left)


def _find_jobset(view: View, trainjob: TrainJob) -> JobSet | None:
    """Of its name, whoever owns it."""
    found = view.find(JOB_SETS, trainjob.namespace, trainjob.name)
    return None if found is None else JobSet(found)


def _start(context: FrameworkContext, view: View, trainjob: TrainJob, runtime: FoundRuntime | Waiting) -> _Outcome:
    """No JobSet yet, or none any more: everything that is missing, the JobSet last."""
    if isinstance(runtime, Waiting):
        return _Outcome(waiting=runtime)
    if _had_jobset(trainjob):
        text = "the JobSet is gone although the job has not ended; it is made anew"
        if trainjob.waiting_reason == RESTARTING:
            text = "the JobSet of the last attempt is gone; the next one is made"
        return _Outcome(waiting=Waiting(MISSING, text))
    children = build_children(trainjob, runtime.obj, context)
    if isinstance(children, Waiting):
        return _Outcome(waiting=children)
    companions = plan_companions(view, trainjob, children.companions)
    if isinstance(companions, Waiting):
        return _Outcome(waiting=companions)
    writes = [*_keep_snapshot(runtime), *companions, Create(JOB_SETS, children.jobset)]
    return _Outcome(tuple(writes), remarks=children.remarks)


def _had_jobset(trainjob: TrainJob) -> bool:
    """A job that has run may have ended without our cache knowing it yet. Saying first that the JobSet is missing,
    under the TrainJob's own revision, proves that it has not: a finished job is never started again."""
    return bool(trainjob.steps) and trainjob.waiting_reason != MISSING


def _keep(
    context: FrameworkContext, view: View, trainjob: TrainJob, jobset: JobSet, runtime: FoundRuntime | Waiting
) -> _Outcome:
    """The JobSet exists. It is frozen while it runs; suspended, it follows the TrainJob."""
    want, have = trainjob.is_suspended, jobset.is_suspended
    if restarts.is_asked_for(trainjob.raw, jobset.raw) and not jobset.is_finished:
        return _restart(trainjob, jobset)
    if jobset.is_deleting:
        text = f"the JobSet {jobset.name} was deleted by hand; it is made anew once it is gone"
        return _Outcome(waiting=Waiting(TERMINATING, text), suspended=have)
    if isinstance(runtime, Waiting):
        if have and not want:
            return _Outcome(waiting=runtime, suspended=have)
        return _Outcome((suspension.build_toggle(jobset, want),)) if want != have else _Outcome()
    writes: list[Write] = [*_keep_snapshot(runtime)]
    if not have and want:
        return _Outcome((*writes, suspension.build_toggle(jobset, want)))
    if have or _has_companions(runtime.obj, context):
        children = build_children(trainjob, runtime.obj, context)
        if isinstance(children, Waiting):
            return _Outcome(tuple(writes), waiting=children, suspended=have)
        companions = plan_companions(view, trainjob, children.companions)
        if isinstance(companions, Waiting):
            return _Outcome(tuple(writes), waiting=companions, suspended=have)
        writes += companions
        if have:
            update = suspension.build_update(jobset, JobSet(children.jobset))
            return _Outcome((*writes, *([] if update is None else [update])))
    marks = suspension.build_marks(jobset, overrides.merge_metadata(trainjob.raw, runtime.obj))
    return _Outcome((*writes, *([] if marks is None else [marks])))


def _restart(trainjob: TrainJob, jobset: JobSet) -> _Outcome:
    """The JobSet goes, and is made anew once it is gone; both have one name, so there is never a second gang. What has
    ended, or changed since it was looked at, is not deleted: it is looked at again."""
    text = f"a restart was asked for: attempt {trainjob.wanted_attempt} begins when the last one is gone"
    waiting, suspended = Waiting(RESTARTING, text), jobset.is_suspended
    if jobset.is_deleting:
        return _Outcome(waiting=waiting, suspended=suspended)
    place = (JOB_SETS, jobset.namespace, jobset.name, jobset.uid)
    return _Outcome((Delete(*place, jobset.resource_version, "Foreground"),), waiting=waiting, suspended=suspended)


def _keep_snapshot(runtime: FoundRuntime) -> Sequence[Write]:
    return () if runtime.snapshot is None else (runtime.snapshot,)


def _has_companions(runtime: Fields, context: FrameworkContext) -> bool:
    if context.progress is not None and context.progress.ca:
        return True
    return find_policy(runtime)[0] in ("mpi", "flux") or bool(get_runtime_spec(runtime).get("podGroupPolicy"))


def _follow_end(trainjob: TrainJob, jobset: JobSet | None, now: Now) -> Plan:
    """The verdict stands. After a deadline the JobSet goes, however often that has to be tried."""
    writes: tuple[Write, ...] = ()
    if jobset is not None and deadline.is_exceeded(trainjob) and not jobset.is_deleting:
        writes = (Delete(JOB_SETS, jobset.namespace, jobset.name, jobset.uid, propagation="Foreground"),)
    return _report(trainjob, build_status(trainjob, jobset, None, now.wall), writes)


def _explain_refusal(refusal: WriteRefusal, own: JobSet | None) -> _Outcome:
    text = refusal.error.message
    if isinstance(refusal.write, Create) and refusal.write.gvr in POD_GROUPS and refusal.error.code == 404:
        group = refusal.write.gvr.group
        text = (
            f"PodGroups of {group} are not served here; install that scheduler, or use a runtime without podGroupPolicy"
        )
    waiting = Waiting("Refused", text)
    return _Outcome(waiting=waiting, suspended=None if own is None else own.is_suspended)


def _explain_foreign(jobset: JobSet) -> Waiting:
    text = f'a JobSet "{jobset.name}" exists that does not belong to this TrainJob; delete or rename one of the two'
    return Waiting("NameConflict", text)


def _finish(trainjob: TrainJob, jobset: JobSet | None, outcome: _Outcome, now: Now, wake: float | None) -> Plan:
    """Adds the status patch, and an event when the reason for waiting is news."""
    waiting = outcome.waiting
    failure = outcome.failure
    after = build_status(
        trainjob, jobset, waiting, now.wall, suspended=outcome.suspended, failure=failure, began=outcome.began
    )
    notes = [Note(trainjob.raw, REMARK_REASON, text, warning=True) for text in outcome.remarks]
    if failure is not None and failure != trainjob.failure:
        notes.append(Note(trainjob.raw, verdict.REASON, _cut("", verdict.describe(failure)), warning=True))
    if waiting is not None and trainjob.waiting.get("message") != waiting.message:
        if waiting.reason in (MISSING, TERMINATING, RESTARTING):
            asked = RESTARTING in (waiting.reason, trainjob.waiting_reason)
            notes.append(Note(trainjob.raw, waiting.reason, waiting.message, warning=not asked))
        else:
            notes.append(Note(trainjob.raw, EVENT_REASON, _cut(EVENT_PREFIX, waiting.message), warning=True))
    elif waiting is None and "waiting" in after and after["waiting"]["reason"] != trainjob.waiting_reason:
        # Of what is below the TrainJob only the reason counts as news: texts there name one Pod of many.
        below = after["waiting"]
        notes.append(Note(trainjob.raw, below["reason"], _cut("", below["message"]), warning=True))
    return _report(trainjob, after, outcome.writes, tuple(notes), wake)


def _report(
    trainjob: TrainJob,
    after: Object,
    writes: tuple[Write, ...] = (),
    notes: tuple[Note, ...] = (),
    wake: float | None = None,
) -> Plan:
    before = trainjob.status
    if after == before:
        return Plan(writes, None, notes, wake)
    changed: Object = {key: after.get(key) for key in [*before, *after] if before.get(key) != after.get(key)}
    # An empty status is invalid (the schema wants a field): when the last field goes, the status goes.
    body = changed if after else None
    head = trainjob.head
    status = Patch(TRAIN_JOBS, trainjob.namespace, trainjob.name, {"metadata": head, "status": body}, "status")
    return Plan(writes, status, notes, wake)


def _cut(prefix: str, text: str) -> str:
    raw = text.encode()
    return prefix + (text if len(raw) <= EVENT_LIMIT else raw[:EVENT_LIMIT].decode(errors="ignore") + " ...")


def map_trainjob(view: View, trainjob: Object) -> Iterable[Request]:
    return () if _is_over(view, TrainJob(trainjob)) else map_to_self(view, trainjob)


def _is_over(view: View, trainjob: TrainJob) -> bool:
    """It has ended, and a look would find nothing to do. What is over is not looked at, at start nor later; there may
    be very many of them."""
    if not trainjob.is_finished:
        return False
    jobset = _find_jobset(view, trainjob)
    if jobset is not None and not jobset.is_owned_by(trainjob.uid):
        jobset = None
    return is_told(trainjob, jobset) and (jobset is None or not deadline.is_exceeded(trainjob))


def map_child(view: View, obj: Object) -> Iterable[Request]:
    """The owner; of somebody else's object the TrainJobs that wait because it has the name of one of theirs. The
    names of children are the TrainJob's, or begin with it and a dash."""
    owners = tuple(map_to_owner("TrainJob")(view, obj))
    for owner in owners:
        trainjob = view.find(TRAIN_JOBS, owner.namespace, owner.name)
        if trainjob is None or not _is_over(view, TrainJob(trainjob)):
            yield owner
    if owners:
        return
    meta = obj["metadata"]
    parts = meta["name"].split("-")
    for count in range(1, len(parts) + 1):
        name = "-".join(parts[:count])
        trainjob = view.find(TRAIN_JOBS, meta.get("namespace", ""), name)
        if trainjob is not None and TrainJob(trainjob).waiting:
            yield Request(meta["namespace"], name)


def map_runtime(view: View, runtime: Object) -> Iterable[Request]:
    """TrainJobs that wait for this very runtime."""
    meta = runtime["metadata"]
    return summarize(view, MissingRuntimes).list_waiting(meta.get("namespace", ""), meta["name"])


def build_controller(context: FrameworkContext | None = None) -> Controller:
    """The controller for one installation. The default context is the embedded server's."""
    return Controller(
        name="trainjob",
        kind=TRAIN_JOBS,
        reconcile=partial(reconcile, context or FrameworkContext()),
        reporter="trainer-trainjob-controller",
        sources=(
            ChangeSource(TRAIN_JOBS, map_trainjob),
            ChangeSource(JOB_SETS, map_child),
            ChangeSource(JOBS, verdict.map_failed_job),
            ChangeSource(CONFIG_MAPS, map_child),
            ChangeSource(SECRETS, map_child),
            ChangeSource(TRAINING_RUNTIMES, map_runtime),
            ChangeSource(CLUSTER_TRAINING_RUNTIMES, map_runtime),
        ),
    )


CONTROLLER = build_controller()
