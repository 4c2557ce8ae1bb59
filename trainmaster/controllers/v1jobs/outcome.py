"""Whether a v1 job has ended, and how. Pure.

Types that decide about the job are examined first, so a job whose master has succeeded has succeeded, whatever its
workers did in the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainmaster.api.v1jobs.frameworks import EXIT_CODE, JAX, MPI, MXNET, PADDLE, PYTORCH, TENSORFLOW, WORKER
from trainmaster.controllers.v1jobs.census import ReplicaCensus, is_retried, read_exit_code
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import FAILED
from trainmaster.jobs.models.v1jobs import SUCCEEDED, V1Job

_WITH_NAMESPACE = (TENSORFLOW, JAX)
_WITH_NAMESPACE_UNLESS_DECIDED = (PYTORCH, PADDLE)


class V1Outcome(NamedTuple):
    kind: str
    """Succeeded or Failed."""
    message: str
    reason: str = ""
    """Besides the kind of the job; empty for the name of the condition."""
    warning: bool = False


def find_outcome(job: V1Job, census: Mapping[str, ReplicaCensus]) -> V1Outcome | None:
    if _has_succeeded(job, census):
        return V1Outcome(SUCCEEDED, describe_success(job))
    for group in census.values():
        failure = _find_failure(job, group)
        if failure is not None:
            return failure
    return None


def _list_deciding(job: V1Job, census: Mapping[str, ReplicaCensus]) -> list[ReplicaCensus]:
    chosen = [census[name] for name in job.framework.deciding if name in census]
    if not chosen and job.framework is MXNET:
        # Without a scheduler the job has no end, unless it is one worker alone.
        is_single = set(census) == {WORKER} and census[WORKER].replica.count == 1
        return list(census.values()) if is_single else []
    return chosen or [census[name] for name in (WORKER,) if name in census]


def _has_succeeded(job: V1Job, census: Mapping[str, ReplicaCensus]) -> bool:
    for group in _list_deciding(job, census):
        if group.expected <= 0:
            return True
        if group.replica.type == WORKER and _is_early_success(job, group):
            return True
    return False


def _is_early_success(job: V1Job, workers: ReplicaCensus) -> bool:
    """Whether a part of the workers is enough: the first of a TFJob, any of an elastic PyTorchJob."""
    if job.framework is PYTORCH:
        return bool(job.spec.get("elasticPolicy")) and workers.succeeded > 0
    if job.framework is TENSORFLOW and job.spec.get("successPolicy") != "AllWorkers":
        first = workers.pods.get(0)
        return first is not None and first.phase == "Succeeded" and read_exit_code(job, first) == 0
    return False


def _find_failure(job: V1Job, group: ReplicaCensus) -> V1Outcome | None:
    replica = group.replica
    if replica.type == WORKER and job.spec.get("enableDynamicWorker"):
        return None
    ended = [pod for pod in group.list_failed() if not is_retried(job, replica, pod)]
    if replica.restart_policy == EXIT_CODE and ended:
        text = f'job "{job.name}" is failing because "{replica.type}" replica(s) failed.'
        return V1Outcome(FAILED, text, warning=True)
    is_lost = replica.restart_policy == "Never" and group.failed > len(list(group.list_failed()))
    if ended or is_lost:
        reason = f"{job.framework.kind}{FAILED}" if job.framework is MPI else ""
        return V1Outcome(FAILED, describe_failure(job, group), reason)
    return None


def is_running(job: V1Job, census: Mapping[str, ReplicaCensus]) -> bool:
    return any(group.active for group in _list_deciding(job, census))


def _is_short(job: V1Job) -> bool:
    """Whether upstream's messages name the job without its namespace."""
    framework = job.framework
    if framework in _WITH_NAMESPACE_UNLESS_DECIDED:
        return any(name in job.replicas for name in framework.deciding)
    return framework not in _WITH_NAMESPACE


def describe_running(job: V1Job) -> str:
    return f"{job.framework.kind} {job.name if _is_short(job) else f'{job.namespace}/{job.name}'} is running."


def describe_success(job: V1Job) -> str:
    if _is_short(job):
        return f"{job.framework.kind} {job.name} is successfully completed."
    return f"{job.framework.kind} {job.namespace}/{job.name} successfully completed."


def describe_failure(job: V1Job, group: ReplicaCensus) -> str:
    failed = f"because {group.failed} {group.replica.type} replica(s) failed."
    if job.framework is TENSORFLOW:
        return f"TFJob {job.namespace}/{job.name} has failed {failed}"
    return f"{_name_kind(job)} {job.name} is failed {failed}"


def describe_restart(job: V1Job, group: ReplicaCensus) -> str:
    if job.framework is TENSORFLOW:
        return f"job {job.name} is restarting because {group.replica.type} replica(s) failed."
    failed = f"because {group.failed} {group.replica.type} replica(s) failed."
    return f"{_name_kind(job)} {job.name} is restarting {failed}"


def _name_kind(job: V1Job) -> str:
    return "mxjob" if job.framework is MXNET else job.framework.kind


def describe_exit(job: V1Job, pod: Pod) -> str:
    return f"Pod: {job.namespace}.{pod.name} exited with code {read_exit_code(job, pod)}"
