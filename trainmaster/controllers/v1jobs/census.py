"""The Pods of a v1 job by replica type and index, and what they count as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_text
from trainmaster.api.training.restarts import read_first
from trainmaster.api.v1jobs.frameworks import EXIT_CODE, MPI, MXNET, NEVER, REPLICA_INDEX, REPLICA_TYPE, XGBOOST
from trainmaster.api.v1jobs.replicas import ReplicaSpec
from trainmaster.controllers.v1jobs.names import build_selector
from trainmaster.jobs.models.pods import Pod, count_restarts, read_terminated
from trainmaster.jobs.models.training import SUSPENDED
from trainmaster.jobs.models.v1jobs import V1Job

_RETRYABLE = 128
_UNKNOWN = 48879
"""The exit code of a Pod whose container has none, for example because it was evicted. Upstream's number."""
_UNSUPPORTED = "Unsupported"
"""The reason of a Pod that its node cannot run; another one would fail as well."""
_FAIL_AT_ONCE = (XGBOOST, MXNET, MPI)
"""Jobs of these frameworks fail with any Pod that fails, except under ExitCode."""


@dataclass(slots=True)
class ReplicaCensus:
    """The Pods of one replica type."""

    replica: ReplicaSpec
    pods: dict[int, Pod] = field(default_factory=dict)
    surplus: list[Pod] = field(default_factory=list)
    """Pods beyond the number of replicas, which are deleted."""
    leaving: set[int] = field(default_factory=set)
    """Indexes whose Pod was stopped because the job was suspended or restarted, and is not gone yet. It counts as
    nothing."""

    @property
    def active(self) -> int:
        return sum(pod.is_running and not pod.is_deleting for pod in self.pods.values())

    @property
    def succeeded(self) -> int:
        return sum(pod.phase == "Succeeded" for pod in self.pods.values())

    @property
    def failed(self) -> int:
        """A running Pod that somebody deletes counts as failed."""
        return sum(_is_failed(pod) for pod in self.pods.values())

    @property
    def expected(self) -> int:
        """How many have not succeeded yet."""
        return self.replica.count - self.succeeded

    def list_failed(self) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.phase == "Failed")

    def lacks(self, index: int) -> bool:
        """Whether a Pod of that index can be created."""
        return index not in self.pods and index not in self.leaving

    def describe(self, job: V1Job) -> Object:
        counts = {"active": self.active, "succeeded": self.succeeded, "failed": self.failed}
        status: Object = {name: number for name, number in counts.items() if number}
        if job.framework.is_scalable:
            status["selector"] = build_selector(job, self.replica)
        return status


def _is_failed(pod: Pod) -> bool:
    return pod.phase == "Failed" or (pod.is_running and pod.is_deleting)


def take_census(job: V1Job, pods: Iterable[Pod]) -> dict[str, ReplicaCensus]:
    """By type, in the order in which types are examined."""
    found = {replica.word: ReplicaCensus(replica) for replica in job.replicas.values()}
    for pod in pods:
        census = found.get(pod.labels.get(REPLICA_TYPE, ""))
        if census is None:
            continue
        index = find_count(pod.labels.get(REPLICA_INDEX, "0"))
        if index is None or index >= census.replica.count or index in census.pods:
            census.surplus.append(pod)
        elif _is_leaving(job, pod):
            census.leaving.add(index)
        else:
            census.pods[index] = pod
    return {census.replica.type: census for census in found.values()}


def list_without_type(job: V1Job, pods: Iterable[Pod]) -> list[Pod]:
    """Pods of a type that the job does not have: left by a job of the same name, and adopted."""
    words = {replica.word for replica in job.replicas.values()}
    return [pod for pod in pods if pod.labels.get(REPLICA_TYPE, "") not in words]


def _is_leaving(job: V1Job, pod: Pod) -> bool:
    """Whether a Pod ends because the job was restarted, or suspended, even if it has been resumed since."""
    if is_outdated(job, pod):
        return True
    if not pod.is_deleting:
        return False
    condition = job.find_condition(SUSPENDED)
    if condition is None:
        return job.is_suspended
    return condition.get("status") == "True" or pod.created_at <= read_text(condition, "lastTransitionTime")


def is_outdated(job: V1Job, pod: Pod) -> bool:
    """Whether a user has asked for a restart since the Pod was created."""
    return read_first(pod.raw) < job.wanted_attempt


def read_exit_code(job: V1Job, pod: Pod) -> int:
    """Of the framework's container."""
    for status in pod.container_statuses:
        if status.get("name") == job.framework.container and "exitCode" in read_terminated(status):
            return int(read_terminated(status)["exitCode"])
    return _UNKNOWN


def is_retried(job: V1Job, replica: ReplicaSpec, pod: Pod) -> bool:
    """Whether a failed Pod is replaced, apart from the limit."""
    if pod.reason == _UNSUPPORTED:
        return False
    if replica.restart_policy == EXIT_CODE:
        return read_exit_code(job, pod) >= _RETRYABLE
    return replica.restart_policy != NEVER and job.framework not in _FAIL_AT_ONCE


def count_restarts_in_place(census: Iterable[ReplicaCensus]) -> int:
    """Restarts of containers within running Pods, which count against the limit."""
    return sum(
        count_restarts(status)
        for group in census
        if group.replica.restart_policy != NEVER
        for pod in group.pods.values()
        if pod.is_running
        for status in pod.all_container_statuses
    )
