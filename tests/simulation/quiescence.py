"""Invariants that hold after the faults, when nothing changes any more. One function each.

Each yields a message for every violation. `Rest` is the final state of the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.machine import Process
from tests.simulation.steps import (
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    find_verdict,
    get_controller_uid,
    get_number,
    get_phase,
    is_going,
)
from trainmaster.api import labels
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.pods.phases import is_over


@dataclass(frozen=True, slots=True)
class Rest:
    objects: Mapping[tuple[str, str], Object]
    processes: Mapping[str, Process]
    disturbed: set[str]
    """Names of TrainJobs that users have interfered with."""
    records: Mapping[str, str] | None = None
    """With a history: uid of a TrainJob to its recorded end."""
    publishes: bool = True
    """Whether `status.retention` is written."""

    def list(self, bucket: str) -> Sequence[Object]:
        return [obj for (place, _), obj in sorted(self.objects.items()) if place == bucket]

    def list_owned(self, bucket: str, owner: Object) -> Sequence[Object]:
        return [obj for obj in self.list(bucket) if get_controller_uid(obj) == owner["metadata"]["uid"]]

    def find_jobset(self, trainjob: Object) -> Object | None:
        return next(iter(self.list_owned(JOB_SETS, trainjob)), None)

    def list_pods(self, trainjob: Object) -> Sequence[Object]:
        jobset = self.find_jobset(trainjob)
        jobs = self.list_owned(JOBS, jobset) if jobset is not None else ()
        return [pod for job in jobs for pod in self.list_owned(PODS, job)]


SNAPSHOT = "-runtime-snapshot"
"""The suffix of the name of a runtime snapshot."""

Check = Callable[[Rest], Iterable[str]]
REST_CHECKS: list[tuple[str, Check]] = []


def invariant(number: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        REST_CHECKS.append((number, check))
        return check

    return register


def get_name(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


@invariant("I7")
def check_no_orphans(rest: Rest) -> Iterable[str]:
    uids = {obj["metadata"]["uid"] for obj in rest.objects.values()}
    for obj in rest.objects.values():
        owners = [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]
        if owners and not any(uid in uids for uid in owners):
            yield f"{get_name(obj)} has outlived its owner"


@invariant("I7")
def check_deletions_are_complete(rest: Rest) -> Iterable[str]:
    for obj in rest.objects.values():
        if is_going(obj):
            yield f"{get_name(obj)} was deleted and is still there, finalizers {obj['metadata'].get('finalizers')}"


@invariant("I5")
def check_processes_and_pods(rest: Rest) -> Iterable[str]:
    pods = {pod["metadata"]["uid"]: pod for pod in rest.list(PODS)}
    for process in rest.processes.values():
        if not process.ended and process.uid not in pods:
            yield f"the process of {process.pod} runs without a Pod"
    for uid, pod in pods.items():
        found = rest.processes.get(uid)
        if get_phase(pod) == "Running" and (found is None or found.ended):
            yield f"{get_name(pod)} is Running without a process"


@invariant("I9")
def check_every_job_is_where_it_should_be(rest: Rest) -> Iterable[str]:
    for trainjob in rest.list(TRAIN_JOBS):
        problem = _judge(rest, trainjob)
        if problem:
            yield f"{get_name(trainjob)} {problem}"


def _judge(rest: Rest, trainjob: Object) -> str:
    pods = rest.list_pods(trainjob)
    running = [pod for pod in pods if not is_over(pod)]
    if find_verdict(TRAIN_JOBS, trainjob):
        return f"has ended and {get_name(running[0])} still runs" if running else ""
    waiting = (trainjob.get("status") or {}).get("waiting")
    if waiting:
        return _judge_waiting(rest, trainjob, str(waiting.get("reason")))
    jobset = rest.find_jobset(trainjob)
    if jobset is None:
        return "has no JobSet and says no reason"
    if trainjob["spec"].get("suspend"):
        if running:
            return f"is suspended and {get_name(running[0])} still runs"
        suspended = is_true(list_conditions(trainjob), "Suspended") and jobset["spec"].get("suspend")
        return "" if suspended else "should be suspended and is not"
    if jobset["spec"].get("suspend"):
        return "is resumed and its JobSet is not"
    if find_verdict(JOB_SETS, jobset):
        return "has not noted the end of its JobSet"
    return _judge_running(rest, jobset)


def _judge_waiting(rest: Rest, trainjob: Object, reason: str) -> str:
    """The reason for waiting must still be true; otherwise the job would wait forever."""
    name = trainjob["metadata"]["name"]
    place = f"{trainjob['metadata']['namespace']}/{name}"
    if reason == "RuntimeNotFound":
        runtime = trainjob["spec"]["runtimeRef"]["name"]
        holds = ("trainer.kubeflow.org/clustertrainingruntimes", runtime) not in rest.objects
    elif reason in ("NameConflict", "InvalidRuntimeSnapshot"):
        needed = (
            (JOB_SETS, place),
            ("services", place),
            (JOBS, f"{place}-node-0"),
            ("configmaps", f"{place}{SNAPSHOT}"),
        )
        found = (rest.objects.get(key) for key in needed)
        holds = any(obj is not None and not get_controller_uid(obj) for obj in found)
    elif reason == "Queued":
        own = [pod["metadata"]["uid"] for pod in rest.list_pods(trainjob)]
        others = (pod for pod in rest.list(PODS) if pod["metadata"]["uid"] not in own)
        holds = any(pod["spec"].get("nodeName") and not is_over(pod) for pod in others)
    else:
        holds = reason in ("Unschedulable", "Unsupported")
    return "" if holds else f"waits for {reason}, which is over"


def _judge_running(rest: Rest, jobset: Object) -> str:
    """Some of its Pods must run, or it starves (I11); and the running gang must be complete."""
    jobs = rest.list_owned(JOBS, jobset)
    if not jobs:
        return "should run and its JobSet has no Jobs"
    alive = 0
    for job in jobs:
        pods = [pod for pod in rest.list_owned(PODS, job) if not is_over(pod)]
        alive += len(pods)
        if find_verdict(JOBS, job) or job["spec"].get("suspend"):
            continue
        wanted = job["spec"].get("completions", 1) - get_number(job, "succeeded")
        if len(pods) != min(wanted, job["spec"].get("parallelism", 1)):
            return f"runs with {len(pods)} Pods in {get_name(job)}, {wanted} indexes are not done"
        if any(get_phase(pod) != "Running" for pod in pods):
            return f"has a Pod in {get_name(job)} that does not get to run"
    return "" if alive else "should run and nothing of it does"


@invariant("I8")
def check_job_counts(rest: Rest) -> Iterable[str]:
    for job in rest.list(JOBS):
        pods = rest.list_owned(PODS, job)
        active = sum(1 for pod in pods if not is_over(pod) and not is_going(pod))
        if get_number(job, "active") != active:
            yield f"{get_name(job)} says {get_number(job, 'active')} active Pods, there are {active}"
        if get_number(job, "succeeded") > job["spec"].get("completions", 1):
            yield f"{get_name(job)} says more succeeded than it has indexes"
        if find_verdict(JOBS, job) == "Complete" and get_number(job, "succeeded") < job["spec"].get("completions", 1):
            yield f"{get_name(job)} is complete with {get_number(job, 'succeeded')} succeeded"


@invariant("I8")
def check_jobset_counts(rest: Rest) -> Iterable[str]:
    """The counts in a JobSet's status match its Jobs, and those of the TrainJob match the JobSet's."""
    for jobset in rest.list(JOB_SETS):
        jobs = rest.list_owned(JOBS, jobset)
        finished = bool(find_verdict(JOB_SETS, jobset))
        for entry in (jobset.get("status") or {}).get("replicatedJobsStatus") or ():
            own = [job for job in jobs if job["metadata"]["labels"].get(labels.REPLICATED_JOB_NAME) == entry["name"]]
            active = sum(1 for job in own if not find_verdict(JOBS, job) and get_number(job, "active"))
            succeeded = sum(1 for job in own if find_verdict(JOBS, job) == "Complete")
            if entry.get("active", 0) != active:
                yield f"{get_name(jobset)} says {entry.get('active', 0)} active in {entry['name']}, there are {active}"
            if not finished and entry.get("succeeded", 0) != succeeded:
                said = entry.get("succeeded", 0)
                yield f"{get_name(jobset)} says {said} succeeded in {entry['name']}, there are {succeeded}"


@invariant("I8")
def check_trainjob_repeats_its_jobset(rest: Rest) -> Iterable[str]:
    for trainjob in rest.list(TRAIN_JOBS):
        jobset = rest.find_jobset(trainjob)
        if jobset is None or (trainjob.get("status") or {}).get("waiting"):
            continue
        said = {entry["name"]: entry for entry in (trainjob.get("status") or {}).get("jobsStatus") or ()}
        for entry in (jobset.get("status") or {}).get("replicatedJobsStatus") or ():
            told = said.get(entry["name"], {})
            for key in ("ready", "succeeded", "failed", "active", "suspended"):
                if told.get(key, 0) != entry.get(key, 0):
                    yield f"{get_name(trainjob)} and its JobSet disagree about {key} of {entry['name']}"


@invariant("I13")
def check_nothing_is_overdue(rest: Rest) -> Iterable[str]:
    """Every TTL and deadline here is shorter than the quiet time before this check."""
    for jobset in rest.list(JOB_SETS):
        if find_verdict(JOB_SETS, jobset) and "ttlSecondsAfterFinished" in jobset["spec"]:
            yield f"{get_name(jobset)} has outlived its TTL"
    for trainjob in rest.list(TRAIN_JOBS):
        spec = trainjob["spec"]
        if "activeDeadlineSeconds" in spec and not spec.get("suspend") and not find_verdict(TRAIN_JOBS, trainjob):
            yield f"{get_name(trainjob)} has outlived its deadline"


@invariant("I10")
def check_stories_end_as_told(rest: Rest) -> Iterable[str]:
    """A job without interference is Complete if and only if all Pods of its last attempt succeeded."""
    for trainjob in rest.list(TRAIN_JOBS):
        verdict = find_verdict(TRAIN_JOBS, trainjob)
        jobset = rest.find_jobset(trainjob)
        if not verdict or jobset is None or trainjob["metadata"]["name"] in rest.disturbed:
            continue
        restarts = get_number(jobset, "restarts")
        limit = (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
        pods = rest.list_pods(trainjob)
        if verdict == "Complete" and any(get_phase(pod) == "Failed" for pod in pods) and not _is_patient(rest, jobset):
            yield f"{get_name(trainjob)} is Complete although a Pod of its last attempt failed"
        deadline = "DeadlineExceeded" in str(list_conditions(trainjob))
        if verdict == "Failed" and restarts < limit and not deadline:
            yield f"{get_name(trainjob)} has failed after {restarts} restarts, {limit} were allowed"


def _is_patient(rest: Rest, jobset: Object) -> bool:
    """Whether its Jobs replace failed Pods themselves."""
    return any(job["spec"].get("backoffLimit", 6) > 0 for job in rest.list_owned(JOBS, jobset))
