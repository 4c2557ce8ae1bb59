"""One pass over a JobSet, in upstream's order.

The terminal status is a pass of its own without deletes; clean-up of what still runs is a later pass, triggered by
"terminal and active Jobs exist". Jobs are found by the JobSet's uid. One status patch at the end. Annotations (why
nothing happens, the series of restarts) are written by passes of their own, because they change the revision that a
status patch is conditional on.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.labels import RESTART_SERIES
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, SERVICES
from trainmaster.api.supported import list_unsupported
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch, Write, WriteRefusal
from trainmaster.controllers.jobset import creation, failure_policy, success_policy, suspend, ttl
from trainmaster.controllers.jobset.children import ChildJobs, sort_jobs
from trainmaster.controllers.jobset.fields import JOB_SET, RESTART_STRATEGIES
from trainmaster.controllers.jobset.places import is_suspended
from trainmaster.controllers.jobset.sources import SOURCES
from trainmaster.controllers.jobset.status import Draft, are_all_started
from trainmaster.controllers.ownership import is_terminating
from trainmaster.controllers.waiting import Waiting, build_annotation_patch, find_annotated
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now

MANAGER = "jobset.sigs.k8s.io/jobset-controller"


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    jobset = view.find(JOB_SETS, request.namespace, request.name)
    if jobset is None or is_terminating(jobset) or jobset["spec"].get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    draft = Draft(jobset, now.wall)
    buckets = sort_jobs(jobset, view.owned(JOBS, jobset["metadata"]["namespace"], jobset["metadata"]["uid"]))
    draft.count(buckets)
    if draft.is_finished:
        return _clean_up(view, jobset, buckets, draft, now)
    if refusals:
        return _wait(jobset, _explain(refusals[0]), now, repeat=True)
    problem = _find_problem(jobset, buckets)
    if problem is not None:
        return _wait(jobset, problem, now)
    previous = [_delete(job) for job in buckets.previous if not is_terminating(job)]
    if not is_suspended(jobset) and are_all_started(draft, jobset):
        draft.set("RestartingJobSet", False, "JobsReady", "all jobs are ready")
    if buckets.failed:
        return _handle_failure(jobset, buckets, draft, previous, now)
    if success_policy.is_met(jobset, buckets):
        success_policy.complete(draft)
        return _build_plan((), draft)
    return _run(view, jobset, buckets, draft, previous, now)


def _clean_up(view: View, jobset: Object, buckets: ChildJobs, draft: Draft, now: Now) -> Plan:
    """Nothing is made any more. What still runs goes; what has ended stays until its TTL, or the JobSet, goes."""
    going = [*buckets.active, *buckets.previous]
    writes: list[Write] = [_delete(job) for job in going if not is_terminating(job)]
    remaining = ttl.find_remaining(view, jobset, now)
    if remaining == 0:
        return Plan((*writes, ttl.build_delete(jobset)))
    writes += ttl.release_jobs(jobset, buckets)
    cleared = build_annotation_patch(jobset, None, now.wall)
    if cleared is not None:
        return Plan((*writes, _patch(jobset, cleared)), requeue_after=remaining)
    return Plan(tuple(writes), draft.build_patch(), tuple(draft.notes), requeue_after=remaining)


def _run(view: View, jobset: Object, buckets: ChildJobs, draft: Draft, previous: Sequence[Write], now: Now) -> Plan:
    missing = creation.list_missing(view, jobset, buckets, draft)
    if is_suspended(jobset):
        toggled = suspend.suspend(buckets, draft)
    else:
        toggled = suspend.resume(jobset, buckets, draft)
    if isinstance(missing, Waiting):
        # What is there goes on, stops and resumes meanwhile. The reason first, then the counts.
        pause = _wait(jobset, missing, now)
        writes = (*previous, *toggled)
        return _build_plan(writes, draft) if pause is NOTHING else Plan((*writes, *pause.writes), None, pause.notes)
    writes = (*previous, *missing, *toggled)
    reason = build_annotation_patch(jobset, _find_reason(buckets), now.wall)
    if reason is None:
        return _build_plan(writes, draft)
    # Last, so that a refusal before it keeps the reason that stands.
    return Plan((*writes, _patch(jobset, reason)))


def _find_reason(buckets: ChildJobs) -> Waiting | None:
    """What the first Job that waits says about itself; people look at the JobSet, or above."""
    for job in buckets.active:
        reason = find_annotated(job)
        if reason is not None:
            text = f'job "{job["metadata"]["name"]}": {reason.get("message", "")}'
            return Waiting(str(reason.get("reason", "Waiting")), text)
    return None


def _handle_failure(jobset: Object, buckets: ChildJobs, draft: Draft, previous: Sequence[Write], now: Now) -> Plan:
    verdict = failure_policy.decide(jobset, buckets.failed)
    if failure_policy.is_restart(jobset, verdict):
        if failure_policy.starts_new_series(jobset, verdict):
            return Plan((_note_progress(jobset, draft),))
        left = failure_policy.find_pause_left(jobset, verdict, now)
        if left > 0:
            text = failure_policy.describe_delay(jobset, verdict, draft)
            end = failure_policy.describe_end(jobset, verdict)
            pause = _wait(jobset, Waiting("RestartBackOff", text, end), now)
            rest = _build_plan(previous, draft) if pause is NOTHING else pause
            return Plan(rest.writes, rest.status, rest.notes, requeue_after=left)
    failure_policy.apply(jobset, verdict, draft)
    return _build_plan(() if draft.is_finished else previous, draft)


def _note_progress(jobset: Object, draft: Draft) -> Patch:
    meta = jobset["metadata"]
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    return _patch(jobset, {"metadata": {**head, "annotations": {RESTART_SERIES: str(draft.restarts)}}})


def _find_problem(jobset: Object, buckets: ChildJobs) -> Waiting | None:
    spec = jobset["spec"]
    fields = list_unsupported(spec, JOB_SET, "spec")
    strategy = (spec.get("failurePolicy") or {}).get("restartStrategy", "Recreate")
    if strategy not in RESTART_STRATEGIES:
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


def _wait(jobset: Object, problem: Waiting, now: Now, *, repeat: bool = False) -> Plan:
    """`repeat`: an event for each attempt and not only for the first, counted in one object."""
    patch = build_annotation_patch(jobset, problem, now.wall)
    news = repeat or (find_annotated(jobset) or {}).get("message") != problem.message
    notes = (Note(jobset, problem.reason, problem.message, warning=True),) if news else ()
    if patch is None:
        return Plan(notes=notes) if notes else NOTHING
    return Plan((_patch(jobset, patch),), None, notes)


def _build_plan(writes: Sequence[Write], draft: Draft) -> Plan:
    return Plan(tuple(writes), draft.build_patch(), tuple(draft.notes))


def _patch(jobset: Object, patch: Object) -> Patch:
    return Patch(JOB_SETS, jobset["metadata"]["namespace"], jobset["metadata"]["name"], patch)


def _delete(job: Object) -> Delete:
    """Foreground: the name is free again only when the Pods are gone, so two generations never run at once."""
    meta = job["metadata"]
    return Delete(JOBS, meta["namespace"], meta["name"], uid=meta["uid"], propagation="Foreground")


CONTROLLER = Controller(
    name="jobset",
    kind=JOB_SETS,
    reconcile=reconcile,
    reporter="jobset",
    sources=SOURCES,
)
