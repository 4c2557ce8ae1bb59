"""Diagnoses jobs that do not end, are not deleted, or were deleted too early; each finding suggests a fix.

Pure. Works with any API server, whichever controllers run. `trainmaster doctor trainjob` collects the `Case` and prints
the findings. A `problem` prevents something from working; a `note` is a pitfall, or worth knowing. To add a check,
write a function and add it to `CHECKS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainmaster.api.labels import KEEP_CHECKPOINTS, KEEP_CHECKPOINTS_EVERY, ON_STALL, RESTART, RESUME_FROM
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.templates import list_inside
from trainmaster.api.lifecycle.term_names import DEADLINE_FIELD, ENFORCED_ANNOTATION, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.lifecycle.terms import EffectiveTerm, check_annotations, find_deadline, find_ttl
from trainmaster.api.meta import Object
from trainmaster.jobs.janitor import describe_age, list_foreign_finalizers
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.troubles import find_refusal, find_trouble
from trainmaster.kit.clock import format_time, parse_time

NOTE, PROBLEM = "note", "problem"
_BUSY = ("Running", "Pending")
_EXAMPLES = {
    RESTART: "1",
    ON_STALL: "observe",
    ENFORCED_ANNOTATION: "true",
    KEEP_CHECKPOINTS: "3",
    KEEP_CHECKPOINTS_EVERY: "1000",
    RESUME_FROM: "UID/NAME",
}
"""Valid values of annotations that are no times."""
_LATE = 30.0
"""Seconds after which something that should have happened is considered overdue."""
_MOST_SKEW = 5.0
_MANY_RETRIES = 20


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    state: str
    seen: str
    fix: str = ""
    """A command, or what to do if no command can fix it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything known about one training job."""

    job: TrainingJob
    now: datetime
    """The time by the server's clock, which also wrote the times in objects."""
    runtime: Object | None = None
    """The live runtime."""
    snapshot: bool = False
    """Whether the job has a snapshot of the runtime."""
    jobsets: Sequence[JobSet] = ()
    jobs: Sequence[Job] = ()
    pods: Sequence[Pod] = ()
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)
    forbidden: Sequence[tuple[str, str]] = ()
    """(verb, resource) pairs that the user is not allowed."""
    skew: float | None = None
    """How many seconds the server's clock is ahead of ours."""
    events: Sequence[ObjectEvent] = ()
    """About its Jobs."""
    retries: Mapping[str, float] = field(default_factory=dict)
    """Per controller, from metrics: passes that failed, for example with a conflict, and refused deletions."""

    @property
    def place(self) -> str:
        return f"{self.job.name} -n {self.job.namespace}"

    @property
    def subject(self) -> str:
        """The job as kubectl names it."""
        return f"{self.job.word} {self.place}"


def examine(case: Case) -> list[CheckResult]:
    return [finding for check in CHECKS for finding in check(case)]


def check_finalizers(case: Case) -> Iterator[CheckResult]:
    job = case.job
    foreign = list_foreign_finalizers(job)
    if not foreign:
        return
    names = ", ".join(foreign)
    if job.is_deleting:
        age = (case.now - parse_time(job.meta["deletionTimestamp"])).total_seconds()
        fix = f"trainmaster cleanup --clear-finalizers --yes -n {job.namespace}   # if its owner is gone for good"
        yield CheckResult("finalizers", PROBLEM, f"deleted {describe_age(age)} ago, and kept by {names}", fix)
    else:
        yield CheckResult("finalizers", NOTE, f"{names} will keep it after it is deleted, until its owner removes that")


def check_retention(case: Case) -> Iterator[CheckResult]:
    end = case.job.end
    if end is None or case.job.is_deleting:
        return
    term = find_ttl(case.job.raw, case.runtime, case.policy)
    if term is None:
        fix = f"kubectl annotate {case.subject} {TTL_ANNOTATION}=3600"
        yield CheckResult("ttl", NOTE, f"{end[0]}, and kept until somebody deletes it: nobody set a TTL", fix)
        return
    due = parse_time(end[1]) + timedelta(seconds=term.seconds)
    late = (case.now - due).total_seconds()
    if late > _LATE:
        yield _explain_late(case, term, due, late)


def _explain_late(case: Case, term: EffectiveTerm, due: datetime, late: float) -> CheckResult:
    retention = case.job.retention
    seen = f"due at {format_time(due)} ({term.seconds} s after its end, by {term.source}), {describe_age(late)} ago"
    if retention.get("message"):
        return CheckResult("ttl", PROBLEM, f"{seen}: {retention['message']}", "remove that cause; it is tried again")
    seen += ", and still here: no controller that deletes it runs"
    fix = f"trainmaster operator --companion   # on a cluster; for this one: kubectl delete {case.subject}"
    return CheckResult("ttl", PROBLEM, seen, fix)


def check_annotation_values(case: Case) -> Iterator[CheckResult]:
    for error in check_annotations(case.job.raw):
        key = error.path.partition("[")[2].rstrip("]")
        value = _EXAMPLES.get(key, "3600")
        fix = f"kubectl annotate {case.subject} --overwrite {key}={value}"
        yield CheckResult("annotation", PROBLEM, f"{error.path} {error.detail}: it has no effect", fix)


def check_level(case: Case) -> Iterator[CheckResult]:
    """A TTL in a template deletes the TrainJob's children but not the TrainJob, which is a common mistake."""
    runtime = case.runtime
    if runtime is None:
        return
    name = runtime["metadata"]["name"]
    kind = (runtime.get("kind") or "ClusterTrainingRuntime").lower()
    where = f" -n {runtime['metadata']['namespace']}" if runtime["metadata"].get("namespace") else ""
    for field_name, trap in (
        (TTL_FIELD, "deletes the JobSet or Job and leaves the TrainJob for ever"),
        (DEADLINE_FIELD, "ends a Job behind the TrainJob's back"),
    ):
        for path, value in list_inside(runtime, field_name):
            pointer = "/" + path.replace("[", ".").replace("]", "").replace(".", "/")
            patch = json.dumps([{"op": "remove", "path": pointer}])
            fix = f"kubectl patch {kind} {name}{where} --type=json -p '{patch}'"
            yield CheckResult("level", PROBLEM, f'runtime "{name}" {path}={value} {trap}', fix)


def check_children(case: Case) -> Iterator[CheckResult]:
    children: tuple[tuple[str, Sequence[ObjectModel]], ...] = (("jobset", case.jobsets), ("job", case.jobs))
    for word, objects in children:
        for obj in objects:
            seconds = obj.spec.get(TTL_FIELD)
            if seconds is not None:
                seen = f"{word} {obj.name} has {TTL_FIELD}={seconds}: it goes alone, the TrainJob stays"
                yield CheckResult("children", NOTE, seen, f"kubectl annotate {case.subject} {TTL_ANNOTATION}={seconds}")
    for job in case.jobs:
        wanted = job.spec.get("completions") or job.spec.get("parallelism") or 1
        if job.succeeded >= wanted and not job.status.get("completionTime"):
            seen = f"job {job.name}: {job.succeeded} of {wanted} Pods succeeded, no completionTime"
            fix = f"kubectl describe job {job.name} -n {job.namespace}"
            yield CheckResult("children", PROBLEM, f"{seen}: the Job controller has not finished it", fix)


def check_leaks(case: Case) -> Iterator[CheckResult]:
    """Pods still running for a finished job."""
    end = case.job.end
    if end is None or (case.now - parse_time(end[1])).total_seconds() < _LATE:
        return
    busy = [pod.name for pod in case.pods if pod.status.get("phase") in _BUSY and not pod.is_deleting]
    if busy:
        condition = case.job.end_condition
        reason = (condition and condition.get("reason")) or end[0]
        seen = f"the job is over ({reason}), and {len(busy)} Pods are at work: {', '.join(sorted(busy)[:3])}"
        fix = (
            f"kubectl delete jobset {case.place}"
            if case.job.has_jobset
            else f"kubectl delete pod -n {case.job.namespace} " + " ".join(busy)
        )
        yield CheckResult("leak", PROBLEM, seen, fix)


def check_pods(case: Case) -> Iterator[CheckResult]:
    """Pods that do not start or do not stay, and Pods that the server refuses."""
    if case.job.end is not None or case.job.is_suspended:
        return
    trouble = find_trouble(case.pods)
    if trouble is not None:
        fix = f"kubectl describe pod {trouble.pod} -n {case.job.namespace}"
        yield CheckResult("pods", PROBLEM, f"{trouble.reason}: {trouble.message}", fix)
    if not case.events:
        return
    without = [job.uid for job in case.jobs if not job.is_finished and not _has_pods(case, job)]
    refusal = find_refusal(without, case.events)
    if refusal is not None:
        fix = f"kubectl get events -n {case.job.namespace}   # then change the job, or what refuses its Pods"
        yield CheckResult("pods", PROBLEM, f"{refusal.reason}: {refusal.message}", fix)


def _has_pods(case: Case, job: Job) -> bool:
    return sum(1 for pod in case.pods if pod.is_owned_by(job.uid)) >= job.parallelism


def check_deadline(case: Case) -> Iterator[CheckResult]:
    """Only reports a deadline that nothing enforces; the exact times are up to the controller."""
    term = find_deadline(case.job.raw, case.runtime)
    started = [parse_time(pod.started_at) for pod in case.pods if pod.started_at]
    if term is None or not started or case.job.end is not None:
        return
    over = (case.now - min(started)).total_seconds() - term.seconds
    if over > _LATE and not case.job.is_suspended:
        seen = f"active for {describe_age(over)} longer than {term.seconds} s, by {term.source}"
        fix = f"kubectl patch {case.subject} --type=merge -p '{json.dumps(case.job.build_suspension(True))}'"
        yield CheckResult("deadline", PROBLEM, f"{seen}: no controller acts on it", fix)


def check_runtime(case: Case) -> Iterator[CheckResult]:
    reference = case.job.runtime
    if not reference or case.runtime is not None or case.job.end is not None:
        return
    kind = reference.get("kind", "ClusterTrainingRuntime")
    seen = f"{kind} {reference['name']} does not exist"
    if case.snapshot:
        yield CheckResult("runtime", NOTE, f"{seen}; the job goes on from its own copy, a rerun will not")
    else:
        yield CheckResult("runtime", PROBLEM, f"{seen}, so the job cannot start", f"kubectl get {kind.lower()}s")


def check_controller(case: Case) -> Iterator[CheckResult]:
    age = (case.now - parse_time(case.job.created_at)).total_seconds()
    if age > _LATE and not case.job.status and not case.jobsets and not case.job.is_deleting:
        fix = "trainmaster status   # on a cluster: is the trainer's manager, or `trainmaster operator`, running?"
        yield CheckResult(
            "controller", PROBLEM, f"created {describe_age(age)} ago, and no controller has looked at it", fix
        )


def check_access(case: Case) -> Iterator[CheckResult]:
    namespace = case.job.namespace
    for verb, resource in case.forbidden:
        fix = f"kubectl create role trainjobs --verb={verb} --resource={resource} -n {namespace}   # and bind it"
        yield CheckResult("access", PROBLEM, f"you may not {verb} {resource} in {namespace}", fix)


def check_clock(case: Case) -> Iterator[CheckResult]:
    if case.skew is not None and abs(case.skew) > _MOST_SKEW:
        where = "ahead of" if case.skew > 0 else "behind"
        seen = f"the server's clock is {abs(case.skew):.0f} s {where} this machine's: ages that you see are off by that"
        yield CheckResult("clock", NOTE, seen, "timedatectl set-ntp true   # on the machine that is wrong")


def check_conflicts(case: Case) -> Iterator[CheckResult]:
    for controller, count in sorted(case.retries.items()):
        if count >= _MANY_RETRIES:
            seen = (
                f"{controller} had to try {count:.0f} times again since the server started: others write what it writes"
            )
            fix = f"kubectl get {case.subject} --show-managed-fields -o yaml   # who?"
            yield CheckResult("conflicts", NOTE, seen, fix)


CHECKS: tuple[Callable[[Case], Iterator[CheckResult]], ...] = (
    check_controller,
    check_runtime,
    check_finalizers,
    check_retention,
    check_annotation_values,
    check_level,
    check_children,
    check_leaks,
    check_pods,
    check_deadline,
    check_conflicts,
    check_access,
    check_clock,
)
