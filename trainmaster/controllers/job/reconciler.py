"""One pass over a Job: count, decide, then stop or create Pods.

Counts are stored before any action that depends on them (replacing, stopping or releasing a Pod), so neither a crash
nor a stale view makes a Pod count twice or not at all. The interim condition (FailureTarget, SuccessCriteriaMet) is
stored as soon as the outcome is decided; the next pass stops running Pods, and a later one sets Failed or Complete once
all Pods have ended. After the decision no Pods are created, and any that appear because of a late write are stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from trainmaster.api.declaring.supported import JOB, list_unsupported
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, WriteRefusal
from trainmaster.controllers.job.claims import claim_pods, gather, gather_own, map_job, map_pod
from trainmaster.controllers.job.expected_pods import Slot, read_expected_pods
from trainmaster.controllers.job.facts import PodFactsMemo
from trainmaster.controllers.job.passes import Pass
from trainmaster.controllers.job.pod_counts import count_pods
from trainmaster.controllers.job.pods import build_pod_name
from trainmaster.controllers.job.ttl import find_time_left
from trainmaster.controllers.waiting import Waiting, build_annotation_patch, find_annotated
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, ObjectDraft, build_delete
from trainmaster.engine.plan import NOTHING, Plan, Reconcile
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import format_time
from trainmaster.kit.steps import Steps, finish_steps
from trainmaster.kit.timeline import Now

MANAGER = "kubernetes.io/job-controller"
REPLACEMENT = BackoffPolicy(first=10.0, cap=600.0)
"""Upstream's back-off before failed Pods are replaced (at most 600 s since Kubernetes 1.28)."""


@dataclass(frozen=True, slots=True)
class JobPassContext:
    """State shared by all passes of a controller."""

    policy: BackoffPolicy = REPLACEMENT
    """The back-off before failed Pods are replaced."""
    memo: PodFactsMemo = field(default_factory=PodFactsMemo)


def reconcile_in_steps(
    context: JobPassContext, view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()
) -> Steps[Plan]:
    raw = view.find(JOBS, request.namespace, request.name)
    if raw is None:
        return NOTHING
    job = Job(raw)
    if job.is_deleting:
        return NOTHING
    is_ours = job.spec.get("managedBy", MANAGER) == MANAGER
    if job.is_finished:
        return _clean_up(job, _list_left_behind(view, job) if is_ours else [], now)
    if not is_ours:
        return NOTHING
    problem = _find_problem(job, refusals)
    if problem is not None:
        return _wait(job, problem, now)
    expected = read_expected_pods(job)
    claims = yield from claim_pods(view, context.memo, job, expected.next)
    counts = yield from count_pods(job, expected, claims.pods, now.wall, partial(_has_left, view, job))
    if not counts.active:
        context.memo.forget(job.uid)
    one = Pass(job, claims, counts, context.policy, now, partial(_is_name_taken, view, job))
    return (yield from one.build_plan())


def reconcile(
    context: JobPassContext, view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()
) -> Plan:
    return finish_steps(reconcile_in_steps(context, view, request, now, refusals))


def _list_left_behind(view: View, job: Job) -> list[Delete]:
    pods = map(Pod, view.owned(PODS, job.namespace, job.uid))
    return [build_delete(PODS, pod) for pod in pods if pod.is_active]


def _clean_up(job: Job, left_behind: Sequence[Delete], now: Now) -> Plan:
    """Stops remaining Pods first, then deletes the Job when its TTL expires."""
    draft = Draft()
    draft.writes += left_behind
    left = find_time_left(job, now)
    if not left_behind:
        if left is not None and left <= 0:
            draft.write(build_delete(JOBS, job, versioned=True, propagation="Foreground"))
        else:
            draft.wake_after(left)
    return draft.build_plan()


def _has_left(view: View, job: Job, number: int, slot: Slot) -> bool:
    """Whether somebody removed the Pod from the Job; this is not a failure of the Pod."""
    pod = view.find(PODS, job.namespace, build_pod_name(job, number, slot.attempt))
    return pod is not None and not Pod(pod).is_owned_by(job.uid)


def _is_name_taken(view: View, job: Job, name: str) -> bool:
    return view.find(PODS, job.namespace, name) is not None


def _find_problem(job: Job, refusals: Sequence[WriteRefusal]) -> Waiting | None:
    fields = list_unsupported(job.spec, JOB, "spec")
    if fields:
        return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)} of the Job")
    if refusals and isinstance(refusals[0].write, Create):
        return Waiting("FailedCreate", f"Error creating: {refusals[0].error.message}")
    if refusals:
        return Waiting("FailedUpdate", f"Error updating: {refusals[0].error.message}")
    return None


def _wait(job: Job, problem: Waiting, now: Now) -> Plan:
    patch = build_annotation_patch(JOBS, job, problem, now.wall)
    if patch is None:
        return NOTHING
    draft = ObjectDraft(JOBS, job, versioned=False)
    draft.write(patch)
    if read_text(find_annotated(job.raw), "message") != problem.message:
        draft.note(job, problem.reason, problem.message, warning=True)
    if "startTime" not in job.status and not job.is_suspended:
        # The Job has started even if its first Pods were refused, so deadlines count from now.
        started = {"startTime": format_time(now.wall), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
        draft.status |= started
    return draft.build_plan()


def build_controller(policy: BackoffPolicy = REPLACEMENT) -> Controller:
    """`policy`: the back-off before failed Pods are replaced."""
    context = JobPassContext(policy)
    bound: Callable[..., Plan] = partial(reconcile, context)
    run: Reconcile = bound
    in_steps: Callable[..., Steps[Plan]] = partial(reconcile_in_steps, context)
    return Controller(
        name="job",
        kind=JOBS,
        reconcile=run,
        reconcile_in_steps=in_steps,
        reporter="job-controller",
        sources=(ChangeSource(JOBS, map_job, gather_own), ChangeSource(PODS, map_pod, gather)),
    )


CONTROLLER = build_controller()
