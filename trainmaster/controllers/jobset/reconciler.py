"""One pass over a JobSet, in upstream's order.

The terminal status is a pass of its own without deletes; clean-up of what still runs is a later pass, triggered by
"terminal and active Jobs exist". Jobs are found by the JobSet's uid. One status patch at the end. Annotations (why
nothing happens, the series of restarts) are written by passes of their own, because they change the revision that a
status patch is conditional on.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.declaring.supported import JOB_SET, list_unsupported
from trainmaster.api.labels import RESTART_SERIES
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, SERVICES
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch, Write, WriteRefusal
from trainmaster.controllers.jobset import creation, failure_policy, success_policy, suspend, ttl
from trainmaster.controllers.jobset.children import ChildJobs, sort_jobs
from trainmaster.controllers.jobset.sources import SOURCES
from trainmaster.controllers.jobset.status import JobSetDraft, are_all_started
from trainmaster.controllers.waiting import Waiting, build_annotation_patch, find_annotated
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.kit.timeline import Now

MANAGER = "jobset.sigs.k8s.io/jobset-controller"
_RESTART_STRATEGIES = ("Recreate", "BlockingRecreate")
"""InPlaceRestart needs an agent inside the Pods that talks to the API; admission refuses it as upstream's default."""


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    found = view.find(JOB_SETS, request.namespace, request.name)
    if found is None:
        return NOTHING
    jobset = JobSet(found)
    if jobset.is_deleting or jobset.spec.get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    draft = JobSetDraft(jobset, now.wall)
    buckets = sort_jobs(jobset, map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)))
    draft.count(buckets)
    if draft.is_finished:
        return _clean_up(view, jobset, buckets, draft, now)
    if refusals:
        return _wait(jobset, _explain(refusals[0]), now, repeat=True)
    problem = _find_problem(jobset, buckets)
    if problem is not None:
        return _wait(jobset, problem, now)
    previous = [_delete(job) for job in buckets.previous if not job.is_deleting]
    if not jobset.is_suspended and are_all_started(draft, jobset):
        draft.set("RestartingJobSet", False, "JobsReady", "all jobs are ready")
    if buckets.failed:
        return _handle_failure(jobset, buckets, draft, previous, now)
    if success_policy.is_met(jobset, buckets):
        success_policy.complete(draft)
        return _build_plan((), draft)
    return _run(view, jobset, buckets, draft, previous, now)


def _clean_up(view: View, jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft, now: Now) -> Plan:
    """Nothing is made any more. What still runs goes; what has ended stays until its TTL, or the JobSet, goes."""
    going = [*buckets.active, *buckets.previous]
    writes: list[Write] = [_delete(job) for job in going if not job.is_deleting]
    remaining = ttl.find_remaining(view, jobset, now)
    if remaining == 0:
        return Plan((*writes, ttl.build_delete(jobset)))
    writes += ttl.release_jobs(jobset, buckets)
    cleared = build_annotation_patch(JOB_SETS, jobset, None, now.wall)
    if cleared is not None:
        return Plan((*writes, cleared), requeue_after=remaining)
    return Plan(tuple(writes), draft.build_patch(), tuple(draft.notes), requeue_after=remaining)


def _run(
    view: View, jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft, previous: Sequence[Write], now: Now
) -> Plan:
    missing = creation.list_missing(view, jobset, buckets, draft)
    if jobset.is_suspended:
        toggled = suspend.suspend(buckets, draft)
    else:
        toggled = suspend.resume(jobset, buckets, draft)
    if isinstance(missing, Waiting):
        # What is there goes on, stops and resumes meanwhile. The reason first, then the counts.
        pause = _wait(jobset, missing, now)
        writes = (*previous, *toggled)
        return _build_plan(writes, draft) if pause is NOTHING else Plan((*writes, *pause.writes), None, pause.notes)
    writes = (*previous, *missing, *toggled)
    reason = build_annotation_patch(JOB_SETS, jobset, _find_reason(buckets), now.wall)
    if reason is None:
        return _build_plan(writes, draft)
    # Last, so that a refusal before it keeps the reason that stands.
    return Plan((*writes, reason))


def _find_reason(buckets: ChildJobs) -> Waiting | None:
    """What the first Job that waits says about itself; people look at the JobSet, or above."""
    for job in buckets.active:
        reason = find_annotated(job.raw)
        if reason is not None:
            text = f'job "{job.name}": {reason.get("message", "")}'
            return Waiting(str(reason.get("reason", "Waiting")), text)
    return None


def _handle_failure(
    jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft, previous: Sequence[Write], now: Now
) -> Plan:
    verdict = failure_policy.decide(jobset, buckets.failed)
    if failure_policy.is_restart(jobset, verdict):
        if failure_policy.starts_new_series(jobset, verdict):
            return Plan((_note_progress(jobset, draft),))
        left = failure_policy.get_pause_left(jobset, verdict, now)
        if left > 0:
            text = failure_policy.describe_delay(jobset, verdict, draft)
            end = failure_policy.describe_end(jobset, verdict)
            pause = _wait(jobset, Waiting("RestartBackOff", text, end), now)
            rest = _build_plan(previous, draft) if pause is NOTHING else pause
            return Plan(rest.writes, rest.status, rest.notes, requeue_after=left)
    failure_policy.apply(jobset, verdict, draft)
    return _build_plan(() if draft.is_finished else previous, draft)


def _note_progress(jobset: JobSet, draft: JobSetDraft) -> Patch:
    head = jobset.head
    return _patch(jobset, {"metadata": {**head, "annotations": {RESTART_SERIES: str(draft.restarts)}}})


def _find_problem(jobset: JobSet, buckets: ChildJobs) -> Waiting | None:
    fields = list_unsupported(jobset.spec, JOB_SET, "spec")
    strategy = jobset.restart_strategy
    if strategy not in _RESTART_STRATEGIES:
        fields.append(f"spec.failurePolicy.restartStrategy: {strategy}")
    if fields:
        return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)} of the JobSet")
    if buckets.faults:
        return Waiting("DamagedJob", buckets.faults[0])
    return None


def _explain(refusal: WriteRefusal) -> Waiting:
    match refusal.write:
        case Create(gvr, obj) if gvr == JOBS:
            name = obj["metadata"]["name"]
            return Waiting("JobCreationFailed", f'job "{name}" creation failed with error: {refusal.error.message}')
        case Create(gvr, _) if gvr == SERVICES:
            return Waiting("HeadlessServiceCreationFailed", refusal.error.message)
        case Create(gvr, _) if gvr == PERSISTENT_VOLUME_CLAIMS:
            return Waiting("PVCCreationFailed", refusal.error.message)
        case _:
            return Waiting("Refused", refusal.error.message)


def _wait(jobset: JobSet, problem: Waiting, now: Now, *, repeat: bool = False) -> Plan:
    """`repeat`: an event for each attempt and not only for the first, counted in one object."""
    patch = build_annotation_patch(JOB_SETS, jobset, problem, now.wall)
    before = find_annotated(jobset.raw)
    news = repeat or before is None or before.get("message") != problem.message
    notes = (Note(jobset.raw, problem.reason, problem.message, warning=True),) if news else ()
    if patch is None:
        return Plan(notes=notes) if notes else NOTHING
    return Plan((patch,), None, notes)


def _build_plan(writes: Sequence[Write], draft: JobSetDraft) -> Plan:
    return Plan(tuple(writes), draft.build_patch(), tuple(draft.notes))


def _patch(jobset: JobSet, patch: Object) -> Patch:
    return Patch(JOB_SETS, jobset.namespace, jobset.name, patch)


def _delete(job: Job) -> Delete:
    """Foreground: the name is free again only when the Pods are gone, so two generations never run at once."""
    return Delete(JOBS, job.namespace, job.name, uid=job.uid, propagation="Foreground")


CONTROLLER = Controller(
    name="jobset",
    kind=JOB_SETS,
    reconcile=reconcile,
    reporter="jobset",
    sources=SOURCES,
)
