"""One pass over a JobSet, in upstream's order.

The terminal status is written in a pass without deletes; a later pass deletes Jobs that are still active. Jobs are
found by the JobSet's uid. A pass writes the status once, at the end. Annotations (the reason for waiting, the series of
restarts) are written in passes of their own, because they change the revision that a status patch depends on.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.declaring.supported import JOB_SET, list_unsupported
from trainmaster.api.labels import RESTART_SERIES
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, SERVICES
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, WriteRefusal
from trainmaster.controllers import budget
from trainmaster.controllers.jobset import creation, failure_policy, success_policy, suspend, ttl
from trainmaster.controllers.jobset.children import ChildJobs, sort_jobs
from trainmaster.controllers.jobset.sources import SOURCES
from trainmaster.controllers.jobset.status import JobSetDraft, are_all_started
from trainmaster.controllers.waiting import Waiting, build_annotation_patch, find_annotated
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import build_delete, build_patch
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.kit.timeline import Now

MANAGER = "jobset.sigs.k8s.io/jobset-controller"
_RESTART_STRATEGIES = ("Recreate", "BlockingRecreate")
"""InPlaceRestart needs an agent in the Pods that uses the API; admission refuses it, as upstream does by default."""


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    found = view.find(JOB_SETS, request.namespace, request.name)
    if found is None:
        return NOTHING
    jobset = JobSet(found)
    if jobset.is_deleting or jobset.spec.get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    draft = JobSetDraft(jobset, now.wall)
    buckets = sort_jobs(jobset, map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)))
    if jobset.is_finished:
        _clean_up(view, jobset, buckets, draft, now)
        return draft.build_plan()
    problem = _explain(refusals[0]) if refusals else _find_problem(jobset, buckets)
    if problem is not None:
        _wait(jobset, problem, draft, now, repeat=bool(refusals))
        return draft.build_plan()
    draft.count(buckets)
    if not jobset.is_suspended and are_all_started(draft, jobset):
        draft.set("RestartingJobSet", False, "JobsReady", "all jobs are ready")
    if buckets.failed:
        _handle_failure(view, jobset, buckets, draft, now)
    elif success_policy.is_met(jobset, buckets):
        success_policy.complete(draft)
    else:
        _run(view, jobset, buckets, draft, now)
    return draft.build_plan()


def _clean_up(view: View, jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft, now: Now) -> None:
    """Creates nothing. Deletes active Jobs; finished ones remain until their TTL expires or the JobSet is deleted."""
    draft.writes += _list_deletes([*buckets.active, *buckets.previous])
    remaining = ttl.find_remaining(view, jobset, now)
    if remaining == 0:
        draft.write(build_delete(JOB_SETS, jobset, versioned=True, propagation="Foreground"))
        return
    draft.writes += ttl.restore_job_ttls(jobset, buckets)
    draft.wake_after(remaining)
    draft.count(buckets)
    _annotate(jobset, None, draft, now)


def _run(view: View, jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft, now: Now) -> None:
    draft.writes += _list_deletes(buckets.previous)
    missing = creation.list_missing(view, jobset, buckets, draft)
    draft.writes += [] if isinstance(missing, Waiting) else missing
    if jobset.is_suspended:
        suspend.suspend(buckets, draft)
    else:
        suspend.resume(jobset, buckets, draft)
    # Keep this last: if an earlier write is refused, the current reason must remain.
    if isinstance(missing, Waiting):
        _wait(jobset, missing, draft, now)
    else:
        _annotate(jobset, _find_reason(buckets), draft, now)


def _find_reason(buckets: ChildJobs) -> Waiting | None:
    """The reason of the first waiting Job, to show on the JobSet."""
    for job in buckets.active:
        reason = find_annotated(job.raw)
        if reason is not None:
            text = f'job "{job.name}": {reason.get("message", "")}'
            return Waiting(str(reason.get("reason", "Waiting")), text)
    return None


def _handle_failure(view: View, jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft, now: Now) -> None:
    verdict = failure_policy.decide(jobset, buckets.failed)
    standing = budget.judge_jobset(view, jobset)
    if failure_policy.is_restart(jobset, verdict, standing):
        # Before the restart, because the next attempt is compared with this one.
        draft.writes += budget.list_notes(view, jobset, standing)
        if failure_policy.starts_new_series(jobset, verdict, standing):
            draft.postpone_status()
            series = {"metadata": {"annotations": {RESTART_SERIES: str(draft.restarts)}}}
            draft.write(build_patch(JOB_SETS, jobset, series, versioned=True))
            return
        left = failure_policy.get_pause_left(jobset, verdict, now)
        if left > 0:
            draft.wake_after(left)
            text = failure_policy.describe_delay(jobset, verdict, draft, standing)
            end = failure_policy.describe_end(jobset, verdict)
            if not _wait(jobset, Waiting("RestartBackOff", text, end), draft, now):
                draft.writes += _list_deletes(buckets.previous)
            return
    failure_policy.apply(jobset, verdict, draft, standing)
    if not draft.is_finished:
        draft.writes += _list_deletes(buckets.previous)


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


def _wait(jobset: JobSet, problem: Waiting, draft: JobSetDraft, now: Now, *, repeat: bool = False) -> bool:
    """`repeat`: send an event for each attempt, not only the first. Returns whether the reason has changed."""
    before = find_annotated(jobset.raw)
    is_news = _annotate(jobset, problem, draft, now)
    if repeat or before is None or before.get("message") != problem.message:
        draft.note(jobset, problem.reason, problem.message, warning=True)
    return is_news


def _annotate(jobset: JobSet, waiting: Waiting | None, draft: JobSetDraft, now: Now) -> bool:
    """Records why the JobSet waits. If that has changed, it is written now, and the status in the next pass."""
    patch = build_annotation_patch(JOB_SETS, jobset, waiting, now.wall)
    if patch is not None:
        draft.postpone_status()
        draft.write(patch)
    return patch is not None


def _list_deletes(jobs: Sequence[Job]) -> list[Delete]:
    """Foreground: the name becomes free only after the Pods are gone, so two attempts never run at once."""
    return [build_delete(JOBS, job, propagation="Foreground") for job in jobs if not job.is_deleting]


CONTROLLER = Controller(
    name="jobset",
    kind=JOB_SETS,
    reconcile=reconcile,
    reporter="jobset",
    sources=SOURCES,
)
