"""One pass over a TrainJob.

Reads the TrainJob, its runtime or the snapshot of it, its JobSet and the objects its framework needs. Writes the latter
two and the TrainJob's status. Once Complete or Failed is stored it never changes: no children are created, and the
status only follows what is left of the JobSet. Also runs on a cluster, unchanged.

Ownership is by uid: an object that has the right name but another owner is never changed, and `status.waiting` says so.
The same applies to problems that retrying cannot solve, so nothing is retried without a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    SECRETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.training import overrides, restarts
from trainmaster.api.training.references import TRAINJOB_CONTROLLER
from trainmaster.api.training.steps import get_runtime_spec, read_framework
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import Create, WriteRefusal
from trainmaster.controllers import verdict
from trainmaster.controllers.failures import describe as describe_failure
from trainmaster.controllers.frameworks.contract import Companion, FrameworkContext
from trainmaster.controllers.trainjob import announced, attempts, deadline, giving_up, pod_reasons, stalls, suspension
from trainmaster.controllers.trainjob.children import build_children
from trainmaster.controllers.trainjob.companions import plan_companions
from trainmaster.controllers.trainjob.runtimes import FoundRuntime, MissingRuntimes, resolve_runtime
from trainmaster.controllers.trainjob.status import fail, follow_jobset, is_status_current, set_status
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import ObjectDraft, build_delete
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_owner, map_to_self
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

EVENT_REASON = "TrainJobResourcesCreationFailed"
EVENT_PREFIX = "TrainJob resources reconciliation failed: "
EVENT_LIMIT = 950
"""Upstream truncates the error in its event to this many bytes."""
REMARK_REASON = "NotAsAsked"
POD_GROUPS = (COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS)
MISSING = "JobSetMissing"
TERMINATING = "JobSetTerminating"
RESTARTING = "Restarting"


def reconcile(
    context: FrameworkContext, view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()
) -> Plan:
    found = view.find(TRAIN_JOBS, request.namespace, request.name)
    if found is None:
        return NOTHING
    trainjob = TrainJob(found)
    if trainjob.is_deleting or trainjob.spec.get("managedBy", TRAINJOB_CONTROLLER) != TRAINJOB_CONTROLLER:
        return NOTHING
    jobset = _find_jobset(view, trainjob)
    own = jobset if jobset is not None and jobset.is_owned_by(trainjob.uid) else None
    draft = ObjectDraft(TRAIN_JOBS, trainjob)
    if trainjob.is_finished:
        _follow_end(draft, trainjob, own, now)
        return draft.build_plan()
    runtime = resolve_runtime(view, trainjob)
    left = deadline.find_time_left(trainjob, runtime.obj if isinstance(runtime, FoundRuntime) else None, now)
    if left is not None and left <= 0:
        draft.note(trainjob, deadline.REASON, deadline.MESSAGE, warning=True)
        fail(draft, deadline.REASON, deadline.MESSAGE, now.wall)
        return draft.build_plan()
    failure = None if own is None else verdict.find_failure(view, trainjob, own)
    pause = 0.0 if own is None else verdict.get_pause(view, own, failure, now)
    if pause > 0:
        draft.wake_after(pause)
        return draft.build_plan()
    if failure is None and own is not None:
        failure = verdict.blame_job(view, own)
    if context.on_cluster and (text := giving_up.give_up(draft, view, trainjob, own, failure, now)):
        draft.note(trainjob, verdict.REASON, _cut("", text), warning=True)
        return draft.build_plan()
    if refusals:
        waiting: Waiting | None = _explain_refusal(draft, view, trainjob, refusals[0])
    elif own is not None:
        waiting = _keep(draft, context, view, trainjob, own, runtime)
    elif jobset is not None:
        waiting = _explain_foreign(jobset)
    else:
        waiting = _start(draft, context, view, trainjob, runtime)
    below = None
    if waiting is None and own is not None and context.on_cluster:
        below = pod_reasons.find_reason(view, own)
    began = attempts.find_beginning(view, trainjob, own)
    set_status(draft, trainjob, own, waiting, now.wall, below=below, failure=failure, began=began)
    _note_news(draft, trainjob, waiting, failure)
    stalls.follow(draft, context.stalls, view, trainjob, own, now)
    draft.wake_after(left)
    return draft.build_plan()


def _find_jobset(view: View, trainjob: TrainJob) -> JobSet | None:
    """The JobSet with the TrainJob's name, whoever owns it."""
    found = view.find(JOB_SETS, trainjob.namespace, trainjob.name)
    return None if found is None else JobSet(found)


def _start(
    draft: ObjectDraft, context: FrameworkContext, view: View, trainjob: TrainJob, runtime: FoundRuntime | Waiting
) -> Waiting | None:
    """Creates everything that is missing, the JobSet last. Returns why the job has to wait."""
    if isinstance(runtime, Waiting):
        return runtime
    if _had_jobset(trainjob):
        text = "the JobSet is gone although the job has not ended; it is made anew"
        if trainjob.waiting_reason == RESTARTING:
            text = "the JobSet of the last attempt is gone; the next one is made"
        return Waiting(MISSING, text)
    children = build_children(trainjob, runtime.obj, context)
    if isinstance(children, Waiting):
        return children
    seen, unseen = _sort_companions(children.companions, context)
    companions = plan_companions(view, trainjob, seen)
    if isinstance(companions, Waiting):
        return companions
    draft.writes += announced.plan_secrets(view, trainjob, runtime.snapshot, unseen)
    draft.writes += companions
    draft.write(Create(JOB_SETS, children.jobset))
    for remark in children.remarks:
        draft.note(trainjob, REMARK_REASON, remark, warning=True)
    return None


def _sort_companions(
    companions: Iterable[Companion], context: FrameworkContext
) -> tuple[list[Companion], list[Companion]]:
    """(those that the view shows, the others)."""
    seen: list[Companion] = []
    unseen: list[Companion] = []
    for companion in companions:
        (seen if context.sees_secrets or companion.gvr != SECRETS else unseen).append(companion)
    return seen, unseen


def _had_jobset(trainjob: TrainJob) -> bool:
    """Whether a JobSet existed before. Such a job may have finished without our cache showing it yet. So the missing
    JobSet is first recorded in the status, conditional on the TrainJob's revision; if that write succeeds the job has
    not finished. A finished job is never started again."""
    return bool(trainjob.steps) and trainjob.waiting_reason != MISSING


def _keep(
    draft: ObjectDraft,
    context: FrameworkContext,
    view: View,
    trainjob: TrainJob,
    jobset: JobSet,
    runtime: FoundRuntime | Waiting,
) -> Waiting | None:
    """Handles an existing JobSet. It is not changed while it runs; while suspended, it follows the TrainJob. Returns
    why the job has to wait."""
    want, have = trainjob.is_suspended, jobset.is_suspended
    if restarts.is_asked_for(trainjob.raw, jobset.raw) and not jobset.is_finished:
        return _restart(draft, trainjob, jobset)
    if jobset.is_deleting:
        return Waiting(TERMINATING, f"the JobSet {jobset.name} was deleted by hand; it is made anew once it is gone")
    if have and not want and context.on_cluster and (leftover := pod_reasons.find_leftover(view, jobset)):
        return leftover
    if isinstance(runtime, Waiting):
        if have and not want:
            return runtime
        if want != have:
            draft.write(suspension.build_toggle(jobset, want))
        return None
    draft.write(runtime.snapshot)
    if not have and want:
        draft.write(suspension.build_toggle(jobset, want))
        return None
    if have or _has_companions(runtime.obj, context):
        children = build_children(trainjob, runtime.obj, context)
        if isinstance(children, Waiting):
            return children
        seen, unseen = _sort_companions(children.companions, context)
        companions = plan_companions(view, trainjob, seen)
        if isinstance(companions, Waiting):
            return companions
        draft.writes += companions
        if have and not want:
            draft.writes += announced.create_again(trainjob, unseen)
        if have:
            draft.write(suspension.build_update(jobset, JobSet(children.jobset)))
            return None
    draft.write(suspension.build_metadata_patch(jobset, overrides.merge_metadata(trainjob.raw, runtime.obj)))
    return None


def _restart(draft: ObjectDraft, trainjob: TrainJob, jobset: JobSet) -> Waiting:
    """Deletes the JobSet. A new one is created once it is gone; both have the same name, so there are never two gangs.
    The delete is versioned: if the JobSet has finished or changed in the meantime, the next pass decides again."""
    attempt = trainjob.wanted_attempt
    why = "the job stood still" if restarts.read_count(trainjob.raw).attempt == attempt else "a restart was asked for"
    text = f"{why}: attempt {attempt} begins when the last one is gone"
    if not jobset.is_deleting:
        draft.write(build_delete(JOB_SETS, jobset, versioned=True, propagation="Foreground"))
    return Waiting(RESTARTING, text)


def _has_companions(runtime: Fields, context: FrameworkContext) -> bool:
    if context.progress is not None and context.progress.ca:
        return True
    return read_framework(runtime)[0] in ("mpi", "flux") or bool(get_runtime_spec(runtime).get("podGroupPolicy"))


def _follow_end(draft: ObjectDraft, trainjob: TrainJob, jobset: JobSet | None, now: Now) -> None:
    """Only updates the counts. If the job has ended before its JobSet, also deletes that, in every pass until it is
    gone."""
    if jobset is not None and _ended_before(trainjob, jobset) and not jobset.is_deleting:
        draft.write(build_delete(JOB_SETS, jobset, propagation="Foreground"))
    follow_jobset(draft, trainjob, jobset, now.wall)


def _ended_before(trainjob: TrainJob, jobset: JobSet) -> bool:
    if deadline.is_exceeded(trainjob) or stalls.has_failed(trainjob):
        return True
    return giving_up.is_given_up(trainjob, jobset)


def _explain_refusal(draft: ObjectDraft, view: View, trainjob: TrainJob, refusal: WriteRefusal) -> Waiting:
    if taken := announced.explain_taken(view, trainjob, refusal):
        draft.write(taken[1])
        return taken[0]
    text = refusal.error.message
    if isinstance(refusal.write, Create) and refusal.write.gvr in POD_GROUPS and refusal.error.code == 404:
        group = refusal.write.gvr.group
        text = (
            f"PodGroups of {group} are not served here; install that scheduler, or use a runtime without podGroupPolicy"
        )
    return Waiting("Refused", text)


def _explain_foreign(jobset: JobSet) -> Waiting:
    text = f'a JobSet "{jobset.name}" exists that does not belong to this TrainJob; delete or rename one of the two'
    return Waiting("NameConflict", text)


def _note_news(draft: ObjectDraft, trainjob: TrainJob, waiting: Waiting | None, failure: Fields | None) -> None:
    """Emits events for a failure or a reason for waiting that is not in the stored status yet."""
    if failure is not None and failure != trainjob.failure:
        draft.note(trainjob, verdict.REASON, _cut("", describe_failure(failure)), warning=True)
    if waiting is not None and trainjob.waiting.get("message") != waiting.message:
        if waiting.reason in (MISSING, TERMINATING, RESTARTING, pod_reasons.LEFTOVER_POD):
            expected = (RESTARTING, pod_reasons.LEFTOVER_POD)
            asked = waiting.reason in expected or trainjob.waiting_reason == RESTARTING
            draft.note(trainjob, waiting.reason, waiting.message, warning=not asked)
        else:
            draft.note(trainjob, EVENT_REASON, _cut(EVENT_PREFIX, waiting.message), warning=True)
    below = draft.status.get("waiting") if waiting is None else None
    if below is not None and below["reason"] != trainjob.waiting_reason:
        # For a reason copied from a child, only a changed reason is reported, because the text names one Pod of many.
        draft.note(trainjob, below["reason"], _cut("", below["message"]), warning=True)


def _cut(prefix: str, text: str) -> str:
    raw = text.encode()
    return prefix + (text if len(raw) <= EVENT_LIMIT else raw[:EVENT_LIMIT].decode(errors="ignore") + " ...")


def map_trainjob(view: View, trainjob: Object) -> Iterable[Request]:
    return () if _is_over(view, TrainJob(trainjob)) else map_to_self(view, trainjob)


def _is_over(view: View, trainjob: TrainJob) -> bool:
    """Whether the TrainJob has finished and a pass would find nothing to do. Such TrainJobs, of which there may be
    many, are skipped both at startup and later."""
    if not trainjob.is_finished:
        return False
    jobset = _find_jobset(view, trainjob)
    if jobset is not None and not jobset.is_owned_by(trainjob.uid):
        jobset = None
    return is_status_current(trainjob, jobset) and (jobset is None or not _ended_before(trainjob, jobset))


_map_to_trainjob = map_to_owner("TrainJob")


def map_child(view: View, obj: Object) -> Iterable[Request]:
    """The owner. For an object with another owner, the TrainJobs that wait because it has the name of one of their
    children; these names are the TrainJob's, or start with it and a dash."""
    owners = tuple(_map_to_trainjob(view, obj))
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
    """TrainJobs that wait for this runtime."""
    meta = runtime["metadata"]
    return summarize(view, MissingRuntimes).list_waiting(meta.get("namespace", ""), meta["name"])


def build_controller(context: FrameworkContext | None = None) -> Controller:
    """The controller for one installation. The default context is the embedded server's."""
    context = context or FrameworkContext()
    of_pods = (ChangeSource(PODS, pod_reasons.map_pod), ChangeSource(EVENTS, pod_reasons.map_refusal))
    companions = (CONFIG_MAPS, SECRETS) if context.sees_secrets else (CONFIG_MAPS,)
    return Controller(
        name="trainjob",
        kind=TRAIN_JOBS,
        reconcile=partial(reconcile, context),
        reporter="trainer-trainjob-controller",
        sources=(
            ChangeSource(TRAIN_JOBS, map_trainjob),
            ChangeSource(JOB_SETS, map_child),
            ChangeSource(JOBS, verdict.map_failed_job),
            *(ChangeSource(gvr, map_child) for gvr in companions),
            ChangeSource(TRAINING_RUNTIMES, map_runtime),
            ChangeSource(CLUSTER_TRAINING_RUNTIMES, map_runtime),
            *(of_pods if context.on_cluster else ()),
        ),
    )


CONTROLLER = build_controller()
