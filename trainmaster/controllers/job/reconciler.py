"""One pass over an Indexed Job: count, decide, then create or delete Pods (spec jobset-and-job 2.5).

The interim condition (FailureTarget, SuccessCriteriaMet) is stored as soon as the outcome is decided. The next pass
stops what still runs, and Failed or Complete follow once all Pods have ended. Nothing is created after the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.conditions import build_condition, find_condition, is_true, list_conditions, set_condition
from trainmaster.api.labels import POD_UNCOUNTED
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.supported import list_unsupported
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch, Refusal, Write
from trainmaster.controllers.job.fields import JOB
from trainmaster.controllers.job.pods import build_pod, find_index
from trainmaster.controllers.job.tally import Tally, count_pods, format_indexes, get_finish_time
from trainmaster.controllers.ownership import is_terminating
from trainmaster.controllers.waiting import Waiting, build_annotation_patch, find_annotated
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import Source, map_to_owner, map_to_self
from trainmaster.kit.backoff import Policy
from trainmaster.kit.clock import format_time

MANAGER = "kubernetes.io/job-controller"
REPLACEMENT = Policy(first=10.0, cap=600.0)
"""Upstream's pause before failed Pods are replaced (600 s since Kubernetes 1.28)."""

_SUCCESS = ("CompletionsReached", "Reached expected number of succeeded pods")
_FAILURE = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def reconcile(view: View, request: Request, now: datetime, refusals: Sequence[Refusal] = ()) -> Plan:
    job = view.find(JOBS, request.namespace, request.name)
    if job is None or is_terminating(job) or job["spec"].get("managedBy", MANAGER) != MANAGER:
        return NOTHING
    conditions = list_conditions(job)
    if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
        return NOTHING
    problem = _find_problem(job, refusals)
    if problem is not None:
        return _wait(job, problem, now)
    plan = _Pass(job, count_pods(job, view.owned(PODS, job["metadata"]["uid"])), now).build_plan()
    cleared = build_annotation_patch(job, None, now)
    if cleared is None:
        return plan
    # Last, so that a refusal before it keeps the reason. The status follows in a pass of its own, because this
    # write changes the revision that a status patch is conditional on; events about the status go with it.
    meta = job["metadata"]
    notes = tuple(note for note in plan.notes if note.reason in ("SuccessfulCreate", "SuccessfulDelete"))
    return Plan((*plan.writes, Patch(JOBS, meta["namespace"], meta["name"], cleared)), None, notes)


def _find_problem(job: Object, refusals: Sequence[Refusal]) -> Waiting | None:
    fields = list_unsupported(job["spec"], JOB, "spec")
    if job["spec"].get("completionMode", "NonIndexed") != "Indexed":
        fields.append("spec.completionMode: NonIndexed")
    if fields:
        return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)} of the Job")
    if refusals:
        return Waiting("FailedCreate", f"Error creating: {refusals[0].error.message}")
    return None


def _wait(job: Object, problem: Waiting, now: datetime) -> Plan:
    patch = build_annotation_patch(job, problem, now)
    if patch is None:
        return NOTHING
    meta = job["metadata"]
    news = (find_annotated(job) or {}).get("message") != problem.message
    notes = (Note(job, problem.reason, problem.message, warning=True),) if news else ()
    return Plan((Patch(JOBS, meta["namespace"], meta["name"], patch),), None, notes)


class _Pass:
    """The state of one pass: the Job, its tally, and what has been decided so far."""

    def __init__(self, job: Object, tally: Tally, now: datetime) -> None:
        self.job = job
        self.tally = tally
        self.now = now
        self.conditions = list_conditions(job)
        self.writes: list[Write] = []
        self.notes: list[Note] = []
        self.requeue_after: float | None = None
        self.created = 0
        self.stopped = 0
        self.start_time: str | None = (job.get("status") or {}).get("startTime")

    def build_plan(self) -> Plan:
        suspended = bool(self.job["spec"].get("suspend"))
        if self._is_decided("SuccessCriteriaMet") or self._is_decided("FailureTarget"):
            self._end()
        elif suspended:
            self._suspend()
        else:
            self._resume()
            if self._has_succeeded():
                self._decide("SuccessCriteriaMet", *_SUCCESS)
            elif self._has_failed():
                self._decide("FailureTarget", *_FAILURE)
            else:
                self._manage_pods()
        return Plan(tuple(self.writes), self._build_status(), tuple(self.notes), self.requeue_after)

    def _decide(self, kind: str, reason: str, message: str) -> None:
        """What still runs is stopped in a later pass: a stop before the outcome is stored could hide its cause."""
        self._set(kind, reason, message)
        if not self.tally.active:
            self._end()

    def _is_decided(self, kind: str) -> bool:
        return is_true(self.conditions, kind)

    def _has_succeeded(self) -> bool:
        return bool(len(self.tally.completed) >= self.job["spec"].get("completions", 1))

    def _has_failed(self) -> bool:
        limit = self.job["spec"].get("backoffLimit", 6)
        if self.tally.failed > limit:
            return True
        if self.job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        return bool(self.tally.container_restarts >= max(limit, 1))

    def _set(self, kind: str, reason: str, message: str, *, status: bool = True) -> None:
        condition = build_condition(kind, status, reason, message, self.now)
        self.conditions = set_condition(self.conditions, {**condition, "lastProbeTime": format_time(self.now)})

    def _note(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.notes.append(Note(self.job, reason, message, warning))

    def _end(self) -> None:
        """Stops what still runs; when nothing does, the terminal condition follows."""
        for pod in self.tally.active:
            self._delete(pod)
        if self.tally.active or self.tally.terminating:
            return
        if self._is_decided("SuccessCriteriaMet"):
            self._set("Complete", *self._repeat("SuccessCriteriaMet"))
            self._note("Completed", "Job completed")
        else:
            self._set("Failed", *self._repeat("FailureTarget"))
            self._note(*self._repeat("FailureTarget"), warning=True)

    def _repeat(self, kind: str) -> tuple[str, str]:
        condition = find_condition(self.conditions, kind)
        assert condition is not None, "decided before it is repeated"
        return condition["reason"], condition["message"]

    def _suspend(self) -> None:
        for pod in self.tally.active:
            self._delete(pod, uncounted=True)
        if not is_true(self.conditions, "Suspended"):
            self._set("Suspended", "JobSuspended", "Job suspended")
            self._note("Suspended", "Job suspended")
        self.start_time = None

    def _resume(self) -> None:
        if is_true(self.conditions, "Suspended"):
            self._set("Suspended", "JobResumed", "Job resumed", status=False)
            self._note("Resumed", "Job resumed")
        if self.start_time is None:
            self.start_time = format_time(self.now)

    def _manage_pods(self) -> None:
        spec = self.job["spec"]
        completions = spec.get("completions", 1)
        wanted = min(spec.get("parallelism", 1), completions - len(self.tally.completed))
        surplus = len(self.tally.active) - wanted
        if surplus > 0:
            for pod in sorted(self.tally.active, key=lambda pod: find_index(pod) or 0)[-surplus:]:
                self._delete(pod, uncounted=True)
            return
        waits_for_end = spec.get("podReplacementPolicy") == "Failed"
        holders = (*self.tally.active, *(self.tally.terminating if waits_for_end else ()))
        taken = {find_index(pod) for pod in holders} | self.tally.completed
        free = [index for index in range(completions) if index not in taken]
        missing = free[: max(0, wanted - len(holders))]
        pause = self._decide_pause()
        if missing and pause > 0:
            self.requeue_after = pause
            return
        for index in missing:
            pod = build_pod(self.job, index, self.tally.failed)
            self.writes.append(Create(PODS, pod))
            self._note("SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
            self.created += 1

    def _decide_pause(self) -> float:
        """Seconds until replacements may be made: exponential in the failures, from the last one's end."""
        if not self.tally.failed_pods:
            return 0.0
        last = max(get_finish_time(pod) for pod in self.tally.failed_pods)
        return max(0.0, REPLACEMENT.delay(len(self.tally.failed_pods)) - (self.now - last).total_seconds())

    def _delete(self, pod: Object, *, uncounted: bool = False) -> None:
        meta = pod["metadata"]
        if uncounted and POD_UNCOUNTED not in (meta.get("annotations") or {}):
            mark = {"metadata": {"uid": meta["uid"], "annotations": {POD_UNCOUNTED: "true"}}}
            self.writes.append(Patch(PODS, meta["namespace"], meta["name"], mark))
        self.writes.append(Delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"]))
        self._note("SuccessfulDelete", f"Deleted pod: {meta['name']}")
        self.stopped += 1

    def _build_status(self) -> Patch | None:
        """The counts as they will be once this plan is carried out; zero counts are left out, as upstream does."""
        before = self.job.get("status") or {}
        after: Object = {
            **before,
            "active": len(self.tally.active) + self.created - self.stopped or None,
            "succeeded": len(self.tally.completed) or None,
            "failed": self.tally.failed or None,
            "completedIndexes": format_indexes(self.tally.completed) or None,
            "ready": self.tally.ready if not self.stopped else 0,
            "terminating": len(self.tally.terminating) + self.stopped,
            "uncountedTerminatedPods": {},
            "startTime": self.start_time,
            "conditions": self.conditions or None,
        }
        complete = find_condition(self.conditions, "Complete")
        if complete is not None:
            after["completionTime"] = complete["lastTransitionTime"]
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        if not changed:
            return None
        meta = self.job["metadata"]
        head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        return Patch(JOBS, meta["namespace"], meta["name"], {"metadata": head, "status": changed}, "status")


CONTROLLER = Controller(
    name="job",
    kind=JOBS,
    reconcile=reconcile,
    reporter="job-controller",
    sources=(Source(JOBS, map_to_self), Source(PODS, map_to_owner("Job"))),
)
