"""Names and labels of what a v1 job creates, as upstream."""

from __future__ import annotations

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.v1jobs.frameworks import (
    JOB_NAME,
    JOB_ROLE,
    LAUNCHER,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    WORKER,
)
from trainmaster.api.v1jobs.replicas import ReplicaSpec, build_pod_name
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import V1Job


def build_name(job: V1Job, replica: ReplicaSpec, index: int) -> str:
    return build_pod_name(job.name, replica, index)


def build_labels(job: V1Job, replica: ReplicaSpec, index: int) -> dict[str, str]:
    """Of a Service, and the selector of its Pod."""
    labels = {
        OPERATOR_NAME: job.framework.controller,
        JOB_NAME: job.name,
        REPLICA_TYPE: replica.word,
        REPLICA_INDEX: str(index),
    }
    if replica.type == LAUNCHER:
        del labels[REPLICA_INDEX]
    return labels


def build_pod_labels(job: V1Job, replica: ReplicaSpec, index: int) -> dict[str, str]:
    labels = build_labels(job, replica, index)
    return {**labels, JOB_ROLE: "master"} if _is_master(job, replica, index) else labels


def find_lost_labels(job: V1Job, pod: Pod) -> dict[str, str] | None:
    """The labels that the job gave a Pod, if somebody has changed them; None for a Pod whose name is not the job's."""
    if not pod.name.startswith(f"{job.name}-"):
        return None
    word, _, number = pod.name.removeprefix(f"{job.name}-").rpartition("-")
    word, number = (word, number) if word else (number, "")
    has = (pod.labels.get(name, "") for name in (OPERATOR_NAME, JOB_NAME, REPLICA_TYPE, REPLICA_INDEX))
    if tuple(has) == (job.framework.controller, job.name, word, number):
        return None
    replica = next((one for one in job.replicas.values() if one.word == word), None)
    index = find_count(number or "0")
    if replica is None or index is None or build_name(job, replica, index) != pod.name:
        return None
    return build_pod_labels(job, replica, index)


def _is_master(job: V1Job, replica: ReplicaSpec, index: int) -> bool:
    framework = job.framework
    types = framework.deciding if framework.labelled is None else framework.labelled
    if any(name in job.replicas for name in types):
        return replica.type in types
    return framework.labels_first_worker and replica.type == WORKER and index == 0


def build_selector(job: V1Job, replica: ReplicaSpec) -> str:
    """Of the Pods of a replica type, for `/scale`."""
    return f"{JOB_NAME}={job.name},{OPERATOR_NAME}={job.framework.controller},{REPLICA_TYPE}={replica.word}"
