"""A job as `/api/v1` tells it, from Kubernetes objects to plain data. Pure; the models give it its names on the wire.

Five states: Pending (with the reason), Suspended, Running, Complete, Failed. That a job is being deleted is told beside
its state, because it has one until it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api.labels import REST_FRAMEWORK, USER
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.terms import EffectiveTerm, find_deadline, find_ttl
from trainmaster.api.meta import Object
from trainmaster.api.places import PodPlace, find_place
from trainmaster.api.training.ends import find_end, is_finished
from trainmaster.api.training.restarts import read_first
from trainmaster.api.training.steps import LAUNCHER, NODE
from trainmaster.jobs.models import trainjobs
from trainmaster.jobs.models.trainjobs import TrainJob

Thing = Mapping[str, Any]
PENDING = "Pending"
STARTING = "Starting"
"""The reason of a job whose Pods are there and do not run yet."""
STATES = (PENDING, trainjobs.SUSPENDED, trainjobs.RUNNING, trainjobs.COMPLETE, trainjobs.FAILED)
WORKER_JOBS = (NODE, LAUNCHER)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of one job. Everything but the TrainJob may be missing."""

    trainjob: Object
    runtime: Object | None = None
    jobset: Object | None = None
    pods: Sequence[Object] = ()
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)


def read_state(trainjob: Thing) -> trainjobs.TrainJobState:
    """One of STATES, with its reason."""
    meta = {key: value for key, value in trainjob["metadata"].items() if key != "deletionTimestamp"}
    state = TrainJob({**trainjob, "metadata": meta}).state
    if state.is_final:
        return state
    if state.word == trainjobs.SUSPENDED and not trainjob["spec"].get("suspend"):
        return trainjobs.TrainJobState(PENDING, "Resuming", "it was resumed, and its workers are being made")
    if trainjob["spec"].get("suspend"):
        return trainjobs.TrainJobState(
            trainjobs.SUSPENDED, "Suspended", "somebody suspended it; it goes on when it is resumed"
        )
    if state.word == trainjobs.WAITING:
        return trainjobs.TrainJobState(PENDING, state.reason or "Waiting", state.message)
    if state.word == trainjobs.STARTING:
        return trainjobs.TrainJobState(PENDING, STARTING, state.message or "its workers are being made")
    return state


def build_summary(trainjob: Thing) -> dict[str, Any]:
    meta, state, end = trainjob["metadata"], read_state(trainjob), find_end(trainjob)
    labels = meta.get("labels") or {}
    reference = trainjob["spec"]["runtimeRef"]
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "user": labels.get(USER),
        "framework": labels.get(REST_FRAMEWORK),
        "runtime": reference["name"],
        "state": state.word,
        "reason": state.reason or None,
        "message": state.message or None,
        "deleting": "deletionTimestamp" in meta,
        "nodes": TrainJob(trainjob).nodes,
        "created_at": meta["creationTimestamp"],
        "completed_at": None if end is None else end[1],
        "progress": build_progress(trainjob),
        "labels": dict(labels),
    }


def build_progress(trainjob: Thing) -> dict[str, Any] | None:
    """None where the job has reported nothing."""
    report = (trainjob.get("status") or {}).get("trainerStatus")
    if not report:
        return None
    percent, left = TrainJob(trainjob).progress
    return {
        "percent": percent,
        "eta_seconds": None if is_finished(trainjob) else left,
        "metrics": {str(one.get("name", "")): str(one.get("value", "")) for one in report.get("metrics") or ()},
        "updated_at": report.get("lastUpdatedTime"),
    }


def build_detail(story: JobFacts) -> dict[str, Any]:
    trainjob, jobset = story.trainjob, story.jobset
    count = int(((jobset or {}).get("status") or {}).get("restarts") or 0) + read_first(jobset)
    most = None if jobset is None else (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
    summary, workers = build_summary(trainjob), build_workers(story.pods)
    if summary["reason"] == STARTING:
        summary["message"] = _find_obstacle(workers) or summary["message"]
    return {
        **summary,
        "attempt": count,
        "restarts": count,
        "max_restarts": most,
        "verdict": build_verdict(trainjob),
        "workers": workers,
        "deadline": _build_term(find_deadline(trainjob, story.runtime)),
        "retention": _build_term(find_ttl(trainjob, story.runtime, story.policy)),
    }


def _find_obstacle(workers: Sequence[Thing]) -> str:
    """What keeps the first worker that says so from starting: a claim that is not there, packages that do not exist."""
    for one in workers:
        if one["state"] == PENDING and one["message"]:
            return f"worker {one['worker']}: {': '.join(filter(None, (one['reason'], one['message'])))}"
    return ""


def build_verdict(trainjob: Thing) -> dict[str, Any] | None:
    """Which worker failed first, and how."""
    failure = (trainjob.get("status") or {}).get("failure")
    if not failure:
        return None
    return {
        "attempt": int(failure.get("attempt") or 0),
        "job": failure.get("replicatedJob") or failure.get("job"),
        "worker": failure.get("rank"),
        "pod": failure.get("pod"),
        "exit_code": failure.get("exitCode"),
        "signal": _to_text(failure.get("signal")),
        "reason": failure.get("reason"),
        "last_words": failure.get("message"),
        "finished_at": failure.get("finishedAt"),
    }


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _build_term(term: EffectiveTerm | None) -> dict[str, Any] | None:
    return None if term is None else {"seconds": term.seconds, "source": term.source}


def build_workers(pods: Sequence[Object]) -> list[dict[str, Any]]:
    """Those of the newest attempt, in order."""
    placed = [(place, pod) for pod in pods if (place := find_place(pod)) is not None]
    newest = max((place.attempt for place, _ in placed), default=0)
    chosen = [(place, pod) for place, pod in placed if place.attempt == newest]
    return [build_worker(place, pod) for place, pod in sorted(chosen, key=lambda one: _sort_key(one[0]))]


def _sort_key(place: PodPlace) -> tuple[str, int, int, str]:
    return place.job, place.job_index, place.index, place.pod


def build_worker(place: PodPlace, pod: Thing) -> dict[str, Any]:
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting: Thing = {}
    ended: Thing = {}
    started = None
    for one in containers:
        state = one.get("state") or {}
        waiting = state.get("waiting") or waiting
        ended = state.get("terminated") or ended
        started = (state.get("running") or state.get("terminated") or {}).get("startedAt") or started
    unscheduled: Thing = next(
        (
            one
            for one in status.get("conditions") or ()
            if one.get("type") == "PodScheduled" and one["status"] == "False"
        ),
        {},
    )
    why = waiting or unscheduled or ended
    return {
        "job": place.job,
        "worker": place.index,
        "pod": place.pod,
        "attempt": place.attempt,
        "state": str(status.get("phase") or PENDING),
        "reason": status.get("reason") or why.get("reason"),
        "message": status.get("message") or why.get("message"),
        "exit_code": ended.get("exitCode"),
        "restarts": sum(int(one.get("restartCount") or 0) for one in containers),
        "node": (pod.get("spec") or {}).get("nodeName"),
        "started_at": started,
        "finished_at": ended.get("finishedAt"),
    }
