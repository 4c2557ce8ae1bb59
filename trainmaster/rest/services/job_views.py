"""Converts a job from Kubernetes objects to the data of `/api/v1`. Pure; the models define the names on the wire.

Five states: Pending (with the reason), Suspended, Running, Complete, Failed. Deletion is shown separately from the
state, which a job has until it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.api.code import CODE_DIGEST, GIT_COMMIT
from trainmaster.api.labels import RERUN_OF, REST_FRAMEWORK, USER
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.terms import EffectiveTerm, find_deadline, find_ttl
from trainmaster.api.meta import Fields, Object
from trainmaster.api.pods.requests import CPU, PODS, Amounts, add_into, count_requests, read_amounts
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.training.failing.failures import describe_cause, read_failure_cause
from trainmaster.api.training.steps import LAUNCHER, NODE
from trainmaster.jobs.kinds import find_kind_and_place, get_kind_name
from trainmaster.jobs.models import training
from trainmaster.jobs.models.pods import Pod, read_running, read_terminated, read_waiting
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.v1jobs import V1Job

PENDING = "Pending"
STARTING = "Starting"
"""The reason of a job whose Pods exist but are not running yet."""
STATES = (PENDING, training.SUSPENDED, training.RUNNING, training.COMPLETE, training.FAILED)
ON_HOLD = "somebody suspended it; it goes on when it is resumed"
WORKER_JOBS = (NODE, LAUNCHER)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known about one job. All except the job may be missing."""

    job: TrainingJob
    runtime: Object | None = None
    attempts: tuple[int, int, int | None] = (0, 0, None)
    """As returned by `TrainingJob.read_attempts`."""
    pods: Sequence[Pod] = ()
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)


def read_state(job: TrainingJob) -> training.TrainingState:
    """One of STATES, with its reason."""
    state = job.state_ignoring_deletion
    if state.is_final:
        return state
    if state.word == training.SUSPENDED and not job.is_suspended:
        return training.TrainingState(PENDING, "Resuming", "it was resumed, and its workers are being made")
    if job.is_suspended:
        return training.TrainingState(training.SUSPENDED, "Suspended", ON_HOLD)
    if state.word == training.WAITING:
        return training.TrainingState(PENDING, state.reason or "Waiting", state.message)
    if state.word == training.STARTING:
        return training.TrainingState(PENDING, STARTING, state.message or "its workers are being made")
    return state


def build_summary(job: TrainingJob) -> Object:
    state, end = read_state(job), job.end
    return {
        "name": job.name,
        "namespace": job.namespace,
        "kind": get_kind_name(type(job)),
        "uid": job.uid,
        "user": job.labels.get(USER),
        "framework": job.labels.get(REST_FRAMEWORK),
        "runtime": job.runtime.get("name", ""),
        "state": state.word,
        "reason": state.reason or None,
        "message": state.message or None,
        "deleting": job.is_deleting,
        "nodes": job.nodes,
        "created_at": job.created_at,
        "completed_at": None if end is None else end[1],
        "progress": build_progress(job),
        "stalled": build_stalled(job),
        "labels": dict(job.labels),
    }


def build_listed(job: TrainingJob) -> Object:
    """The summary with what few ask for, which is not in the rows of a table of thousands."""
    return {
        **build_summary(job),
        "requests": build_requests(job),
        "priority": _find_priority(job.spec),
        "rerun_of": job.annotations.get(RERUN_OF),
        "git_commit": job.annotations.get(GIT_COMMIT),
        "code_digest": job.annotations.get(CODE_DIGEST),
    }


def build_requests(job: TrainingJob, pods: Sequence[Pod] = ()) -> Object | None:
    """Of its Pods if there are any, else as the job itself says it; None if its runtime decides."""
    total: Amounts = {}
    if pods:
        for pod in pods:
            add_into(total, count_requests(pod.spec))
    elif isinstance(job, TrainJob):
        resources = read_fields(job.trainer, "resourcesPerNode")
        one = {**read_amounts(resources.get("limits")), **read_amounts(resources.get("requests"))}
        add_into(total, one, job.nodes or 0)
    elif isinstance(job, V1Job):
        for replica in job.replicas.values():
            add_into(total, count_requests(replica.pod_spec), replica.count)
    total.pop(PODS, None)
    # CPUs are counted in thousandths.
    return {
        name: amount / 1000 if name == CPU else float(amount) for name, amount in sorted(total.items()) if amount
    } or None


def _find_priority(spec: Fields) -> str | None:
    """The priority class, wherever the Pods of the job name it: in overrides, patches, templates, or a v1 policy."""
    left: list[object] = [spec]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            found = item.get("priorityClassName") or item.get("priorityClass")
            if isinstance(found, str):
                return found
            left += item.values()
        elif isinstance(item, list):
            left += item
    return None


def build_progress(job: TrainingJob) -> Object | None:
    """None if the job has reported nothing."""
    report = job.report
    if not report:
        return None
    percent, left = job.progress
    return {
        "percent": percent,
        "eta_seconds": None if job.is_finished else left,
        "metrics": {str(one.get("name", "")): str(one.get("value", "")) for one in list_items(report, "metrics")},
        "updated_at": report.get("lastUpdatedTime"),
    }


def build_stalled(job: TrainingJob) -> Object | None:
    """None if its steps do not stand still, or nothing is known about that."""
    stalled = job.stalled
    return {name: stalled.get(name) for name in ("since", "position", "message")} if stalled else None


def build_detail(story: JobFacts) -> Object:
    job = story.job
    count, _, most = story.attempts
    summary, workers = build_listed(job), build_workers(story.pods)
    if workers:
        newest = {one["pod"] for one in workers}
        summary["requests"] = build_requests(job, [pod for pod in story.pods if pod.name in newest])
    if summary["reason"] == STARTING:
        summary["message"] = _find_obstacle(workers) or summary["message"]
    return {
        **summary,
        "attempt": count,
        "restarts": count,
        "max_restarts": most,
        "verdict": build_verdict(job),
        "workers": workers,
        "started_at": min((one["started_at"] for one in workers if one["started_at"]), default=None),
        "deadline": _build_term(find_deadline(job.raw, story.runtime)),
        "retention": _build_term(find_ttl(job.raw, story.runtime, story.policy)),
    }


def _find_obstacle(workers: Sequence[Fields]) -> str:
    """What prevents the first such worker from starting: a missing claim, packages that do not exist."""
    for one in workers:
        if one["state"] == PENDING and one["message"]:
            return f"worker {one['worker']}: {': '.join(filter(None, (one['reason'], one['message'])))}"
    return ""


def build_verdict(job: TrainingJob) -> Object | None:
    """Which worker failed first, and how."""
    failure = job.failure
    if failure is None:
        return None
    return {
        "attempt": int(failure.get("attempt") or 0),
        "job": failure.get("replicatedJob") or failure.get("job"),
        "worker": failure.get("rank"),
        "pod": failure.get("pod"),
        "exit_code": failure.get("exitCode"),
        "signal": _to_text(failure.get("signal")),
        "reason": failure.get("reason"),
        "error": describe_cause(read_failure_cause(failure)) or None,
        "last_words": failure.get("message"),
        "finished_at": failure.get("finishedAt"),
    }


def _to_text(value: object) -> str | None:
    return None if value is None else str(value)


def _build_term(term: EffectiveTerm | None) -> Object | None:
    return None if term is None else {"seconds": term.seconds, "source": term.source}


def build_change(change: Fields) -> Object:
    """A change that would start the job. Its patch is given only if nothing else has to be done."""
    patch = change["patch"] if change["is_enough"] else None
    return {"text": change["text"], "how": change["how"], "patch": patch or None}


def build_workers(pods: Sequence[Pod]) -> list[Object]:
    """The workers of the newest attempt, in order; of a v1 job, which replaces its Pods one by one, all of them."""
    found = [(pair, pod) for pod in pods if (pair := find_kind_and_place(pod.raw)) is not None]
    newest = max((place.attempt for (_, place), _ in found), default=0)
    chosen = [(place, pod) for (model, place), pod in found if place.attempt == newest or not model.has_jobset]
    return [build_worker(place, pod) for place, pod in sorted(chosen, key=lambda one: _sort_key(one[0]))]


def _sort_key(place: PodPlace) -> tuple[str, int, int, str]:
    return *place.seat, place.pod


def build_worker(place: PodPlace, pod: Pod) -> Object:
    status = pod.status
    waiting: Fields = {}
    ended: Fields = {}
    started = None
    for one in pod.notable_container_statuses:
        waiting = read_waiting(one) or waiting
        ended = read_terminated(one) or ended
        started = (read_running(one) or read_terminated(one)).get("startedAt") or started
    why = waiting or pod.unscheduled or ended
    return {
        "job": place.job,
        "worker": place.index,
        "pod": place.pod,
        "attempt": place.attempt,
        "state": pod.phase,
        "reason": status.get("reason") or why.get("reason"),
        "message": status.get("message") or why.get("message"),
        "exit_code": ended.get("exitCode"),
        "restarts": sum(int(one.get("restartCount") or 0) for one in pod.all_container_statuses),
        "node": pod.spec.get("nodeName"),
        "started_at": started,
        "finished_at": ended.get("finishedAt"),
    }
