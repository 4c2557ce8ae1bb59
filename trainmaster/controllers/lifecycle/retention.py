"""`ttlSecondsAfterFinished`: a finished job is archived, kept until its TTL expires, and deleted with everything it
owns.

Each pass computes everything from stored data: the end (the time of its condition) and the TTL in force (from the job,
its runtime or the installation). So a restart, a conflict or a lost lease can delay a deletion but never lose it. The
delete is conditional on uid and resourceVersion: it never affects a new job with the same name, and a longer TTL set in
the meantime takes effect. What the job owns is garbage-collected by owner references.

If there is a history, the record is written first (an effect), and the job is deleted in a later pass, once it is
archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial

from trainmaster.api.lifecycle.terms import EffectiveTerm, find_ttl
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, TRAINING_RUNTIMES
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.finish import (
    POLICY,
    FinishedByRuntime,
    find_retention_runtime,
    list_finished,
    read_retention,
)
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, ObjectDraft, build_delete
from trainmaster.engine.plan import NOTHING, Effect, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.timeline import Now

NAME = "retention"
ARCHIVE = "archive"
"""The name of the effect. Its subject is the finished job."""
RETRY = 60.0
"""Seconds until archiving is retried after a failure."""
_RUNTIMES = (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)
_ORDINARY_FINALIZERS = ("foregroundDeletion", "orphan")


def reconcile(
    context: LifecycleContext,
    view: View,
    request: Request,
    now: Now,
    refusals: Sequence[WriteRefusal] = (),
    model: type[TrainingJob] = TrainJob,
) -> Plan:
    found = view.find(model.gvr, request.namespace, request.name)
    if found is None:
        return NOTHING
    job = model(found)
    if job.is_deleting:
        return _explain_stuck(job)
    end = job.end
    if end is None:
        return NOTHING
    uid = job.uid
    term = find_ttl(found, find_retention_runtime(view, job), read_retention(view))
    archived = context.ledger is None or context.ledger.is_archived(uid)
    trouble = None if archived or context.ledger is None else context.ledger.find_trouble(uid)
    # Called even without a TTL, to start the timer now: a TTL set later is then not affected by changes of the clock.
    passed = now.since(uid, "finished", end[1])
    left = None if term is None else term.seconds - passed
    draft = ObjectDraft(model.gvr, job)
    if left is not None and left <= 0 and archived and not refusals:
        draft.write(build_delete(model.gvr, job, versioned=True))
        return draft.build_plan()
    text = _explain_kept(left, trouble, refusals)
    if model.gvr not in context.unpublished:
        draft.status["retention"] = _describe(job, term, end[1], text)
        if text and draft.status["retention"] != job.status.get("retention"):
            draft.note(job, "NotDeleted", text, warning=True)
    if not archived:
        draft.effects.append(Effect(ARCHIVE, found))
    draft.wake_after(RETRY if trouble else left if left is not None and left > 0 else None)
    return draft.build_plan()


def _explain_kept(left: float | None, trouble: str | None, refusals: Sequence[WriteRefusal]) -> str:
    if refusals:
        return f"it is due, and deleting it was refused: {refusals[0].error.message}"
    if trouble and left is not None and left <= 0:
        return f"it is due, and kept because its record could not be written: {trouble}"
    return ""


def _describe(job: TrainingJob, term: EffectiveTerm | None, end: str, message: str) -> Object | None:
    """`status.retention`: the TTL in force, who set it, and when the job will be deleted."""
    if term is None:
        return None
    source = term.source if term.wanted is None else f"{term.source}, instead of {term.wanted} on the {job.kind}"
    moment = format_time(parse_time(end) + timedelta(seconds=term.seconds))
    retention: Object = {"ttlSecondsAfterFinished": term.seconds, "source": source, "deleteAt": moment}
    return {**retention, "message": message} if message else retention


def _explain_stuck(job: TrainingJob) -> Plan:
    """Reports a finalizer that keeps a deleted job. It is never removed here: its owner may still need it, and
    otherwise a person has to decide (`trainmaster cleanup --clear-finalizers`)."""
    foreign = [name for name in job.finalizers if name not in _ORDINARY_FINALIZERS]
    if not foreign:
        return NOTHING
    draft = Draft()
    text = f"deleted, and kept by {', '.join(foreign)}: whoever set that has to remove it"
    draft.note(job, "FinalizerPending", text, warning=True)
    return draft.build_plan()


def map_job(view: View, obj: Object) -> Iterable[Request]:
    """Only finished jobs and jobs that are being deleted, and exist."""
    job = read_training_job(obj)
    if not job.is_finished and not job.is_deleting:
        return ()
    return (_make_request(job),) if view.find(job.gvr, job.namespace, job.name) is not None else ()


def map_runtime(view: View, runtime: Object) -> Iterable[Request]:
    return summarize(view, FinishedByRuntime).list_of(runtime)


def map_policy(model: type[TrainingJob], view: View, config_map: Object) -> Iterable[Request]:
    yield from map(_make_request, list_finished(view, model))


def _make_request(job: TrainingJob) -> Request:
    return Request(job.namespace, job.name)


def build_controllers(context: LifecycleContext | None = None) -> tuple[Controller, ...]:
    """One for each kind of training job."""
    context = context or LifecycleContext()
    return tuple(build_controller(context, model) for model in context.models)


def build_controller(context: LifecycleContext | None = None, model: type[TrainingJob] = TrainJob) -> Controller:
    return Controller(
        name=NAME if model is TrainJob else f"{NAME}-{model.gvr.plural}",
        kind=model.gvr,
        reconcile=partial(reconcile, context or LifecycleContext(), model=model),
        reporter="trainmaster-lifecycle",
        sources=(
            ChangeSource(model.gvr, map_job),
            *(ChangeSource(gvr, map_runtime, fans_out=True) for gvr in _RUNTIMES if model is TrainJob),
            ChangeSource(CONFIG_MAPS, partial(map_policy, model), only=POLICY, fans_out=True),
        ),
    )


CONTROLLERS = build_controllers()
