"""One pass over a JobSet, in upstream's order (spec jobset-and-job 1.8).

The terminal status is a pass of its own without deletes; clean-up of what still runs is a later pass, triggered by
"terminal and active Jobs exist". Jobs are found by the JobSet's uid. One status patch at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.conditions import is_true
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, SERVICES
from trainmaster.api.supported import list_unsupported
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch, Refusal, Write
from trainmaster.controllers.jobset import failure_policy, success_policy
from trainmaster.controllers.jobset.children import (
    Buckets,
    build_job,
    build_service,
    get_job_name,
    get_subdomain,
    has_dns,
    list_places,
    sort_jobs,
)
from trainmaster.controllers.jobset.fields import JOB_SET, RESTART_STRATEGIES, STARTUP_ORDERS
from trainmaster.controllers.jobset.status import Draft, are_all_started
from trainmaster.controllers.ownership import is_terminating
from trainmaster.controllers.waiting import Waiting, build_annotation_patch, find_annotated
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import Source, map_to_owner, map_to_self

MANAGER = "jobset.sigs.k8s.io/jobset-controller"


def reconcile(view: View, request: Request, now: datetime, refusals: Sequence[Refusal] = ()) -> Plan:
    jobset = view.find(JOB_SETS, request.namespace, request.name)
    if jobset is None or is_terminating(jobset) or jobset["spec"].get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    draft = Draft(jobset, now)
    buckets = sort_jobs(view.owned(JOBS, jobset["metadata"]["uid"]), draft.restarts)
    draft.count(buckets)
    if is_true(draft.conditions, "Completed") or is_true(draft.conditions, "Failed"):
        return Plan(tuple(_delete(job) for job in buckets.active if not is_terminating(job)), draft.build_patch())
    problem = _find_problem(jobset, refusals)
    if problem is not None:
        return _wait(jobset, problem, now)
    previous = [_delete(job) for job in buckets.previous if not is_terminating(job)]
    if not jobset["spec"].get("suspend") and are_all_started(draft, jobset):
        draft.set("RestartingJobSet", False, "JobsReady", "all jobs are ready")
    if buckets.failed:
        return _handle_failure(jobset, buckets, draft, previous, now)
    if success_policy.is_met(jobset, buckets):
        success_policy.complete(draft)
        return Plan(tuple(previous), draft.build_patch(), tuple(draft.notes))
    return _run(view, jobset, buckets, draft, previous, now)


def _run(view: View, jobset: Object, buckets: Buckets, draft: Draft, previous: Sequence[Write], now: datetime) -> Plan:
    missing = _list_missing(view, jobset, buckets, draft.restarts)
    if isinstance(missing, Waiting):
        return _wait(jobset, missing, now)
    writes = [*previous, *missing, *_toggle_suspend(jobset, buckets, draft)]
    cleared = build_annotation_patch(jobset, None, now)
    if cleared is None:
        return Plan(tuple(writes), draft.build_patch(), tuple(draft.notes))
    # Last, so that a refusal before it keeps the reason; the status follows in a pass of its own, because this
    # write changes the revision that a status patch is conditional on.
    meta = jobset["metadata"]
    return Plan((*writes, Patch(JOB_SETS, meta["namespace"], meta["name"], cleared)))


def _list_missing(view: View, jobset: Object, buckets: Buckets, restarts: int) -> list[Write] | Waiting:
    """The Service and Jobs that are not there. A name that an old Job still holds waits until that one is gone."""
    namespace = jobset["metadata"]["namespace"]
    writes: list[Write] = []
    if has_dns(jobset) and view.find(SERVICES, namespace, get_subdomain(jobset)) is None:
        writes.append(Create(SERVICES, build_service(jobset)))
    strategy = (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
    if strategy == "BlockingRecreate" and buckets.previous:
        return writes
    taken = buckets.names
    for place in list_places(jobset):
        name = get_job_name(jobset, place)
        if name in taken:
            continue
        if view.find(JOBS, namespace, name) is not None:
            text = f'a Job "{name}" exists that does not belong to this JobSet; delete or rename it'
            return Waiting("NameConflict", text)
        writes.append(Create(JOBS, build_job(jobset, place, restarts)))
    return writes


def _toggle_suspend(jobset: Object, buckets: Buckets, draft: Draft) -> Sequence[Write]:
    want = bool(jobset["spec"].get("suspend"))
    if want:
        draft.set("Suspended", True, "SuspendedJobs", "jobset is suspended")
        draft.set("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")
    else:
        draft.set("Suspended", False, "ResumeJobs", "jobset is resumed")
    writes = []
    for job in buckets.active:
        meta = job["metadata"]
        if bool(job["spec"].get("suspend")) != want and not is_terminating(job):
            patch = {"metadata": {"uid": meta["uid"]}, "spec": {"suspend": want}}
            writes.append(Patch(JOBS, meta["namespace"], meta["name"], patch))
    return writes


def _handle_failure(jobset: Object, buckets: Buckets, draft: Draft, previous: Sequence[Write], now: datetime) -> Plan:
    first = failure_policy.find_first_failed(buckets.failed)
    delay = failure_policy.decide_delay(jobset, first, draft.restarts, now)
    if delay > 0:
        attempts = f"restart {draft.restarts + 1} of {jobset['spec']['failurePolicy']['maxRestarts']}"
        text = f"{attempts} follows after a pause, because job {first['metadata']['name']} failed repeatedly"
        patch = build_annotation_patch(jobset, Waiting("RestartBackOff", text), now)
        if patch is not None:
            meta = jobset["metadata"]
            return Plan((Patch(JOB_SETS, meta["namespace"], meta["name"], patch),), requeue_after=delay)
        return Plan(tuple(previous), draft.build_patch(), tuple(draft.notes), requeue_after=delay)
    failure_policy.apply_policy(jobset, first, draft)
    return Plan(tuple(previous), draft.build_patch(), tuple(draft.notes))


def _find_problem(jobset: Object, refusals: Sequence[Refusal]) -> Waiting | None:
    spec = jobset["spec"]
    fields = list_unsupported(spec, JOB_SET, "spec")
    strategy = (spec.get("failurePolicy") or {}).get("restartStrategy", "Recreate")
    if strategy not in RESTART_STRATEGIES:
        fields.append(f"spec.failurePolicy.restartStrategy: {strategy}")
    order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder", "AnyOrder")
    if order not in STARTUP_ORDERS:
        fields.append(f"spec.startupPolicy.startupPolicyOrder: {order}")
    if fields:
        return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)} of the JobSet")
    if refusals:
        return _explain(refusals[0])
    return None


def _explain(refusal: Refusal) -> Waiting:
    match refusal.write:
        case Create(gvr, obj) if gvr == JOBS:
            name = obj["metadata"]["name"]
            return Waiting("JobCreationFailed", f'job "{name}" creation failed with error: {refusal.error.message}')
        case Create(gvr, _) if gvr == SERVICES:
            return Waiting("HeadlessServiceCreationFailed", refusal.error.message)
        case _:
            return Waiting("Refused", refusal.error.message)


def _wait(jobset: Object, problem: Waiting, now: datetime) -> Plan:
    patch = build_annotation_patch(jobset, problem, now)
    if patch is None:
        return NOTHING
    meta = jobset["metadata"]
    news = (find_annotated(jobset) or {}).get("message") != problem.message
    notes = (Note(jobset, problem.reason, problem.message, warning=True),) if news else ()
    return Plan((Patch(JOB_SETS, meta["namespace"], meta["name"], patch),), None, notes)


def _delete(job: Object) -> Delete:
    """Foreground: the name is free again only when the Pods are gone, so two generations never run at once."""
    meta = job["metadata"]
    return Delete(JOBS, meta["namespace"], meta["name"], uid=meta["uid"], propagation="Foreground")


CONTROLLER = Controller(
    name="jobset",
    kind=JOB_SETS,
    reconcile=reconcile,
    reporter="jobset",
    sources=(
        Source(JOB_SETS, map_to_self),
        Source(JOBS, map_to_owner("JobSet")),
        Source(SERVICES, map_to_owner("JobSet")),
    ),
)
