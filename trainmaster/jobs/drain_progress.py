"""How far a drain is: what still runs, and what its end will resume. For the commands and the REST API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.labels import SUSPENDED_BY_DRAIN
from trainmaster.api.meta import Fields
from trainmaster.api.resources import JOB_SETS, JOBS, NODES, PODS
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.draining import NODE
from trainmaster.jobs.kinds import TRAINING_KINDS, get_kind_name
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.nodes import Drain, Node
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod

_ON_MACHINE = ListOptions(field_selector=f"spec.nodeName={NODE},status.phase!=Succeeded,status.phase!=Failed")
_Jobs = dict[tuple[str, str, str], ObjectModel]
"""By (kind, namespace, name)."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """What still has Pods on a drained machine."""

    kind: str
    """Of the training job, JobSet or Job; "Pod" for a Pod that belongs to none and can only be deleted."""
    namespace: str
    name: str
    uid: str
    pods: int

    @property
    def label(self) -> str:
        """default/my-job; with its kind if it is not a TrainJob."""
        name = f"{self.namespace}/{self.name}"
        return name if self.kind == "TrainJob" else f"{self.kind} {name}"


@dataclass(frozen=True, slots=True)
class DrainState:
    drain: Drain | None
    """None: the machine is not drained."""
    stopping: Sequence[Stopping]
    """By namespace and name."""
    suspended: Sequence[Stopping]
    """What the drain has suspended and its end will resume, with the number of Pods that are left."""

    @property
    def is_complete(self) -> bool:
        """Whether the machine is drained and nothing runs any more."""
        return self.drain is not None and not self.stopping


async def read_drain(client: Client) -> DrainState:
    """Of all namespaces, so it is for administrators."""
    node = Node(await client.get(NODES, NODE))
    jobs: _Jobs = {}
    for job in await list_training_jobs(client):
        jobs[get_kind_name(type(job)), job.namespace, job.name] = job
    for kind, gvr, model in (("JobSet", JOB_SETS, JobSet), ("Job", JOBS, Job)):
        for raw in (await client.list(gvr)).items:
            one: ObjectModel = model(raw)
            if one.controller is None:
                jobs[kind, one.namespace, one.name] = one
    pods = [pod for pod in map(Pod, (await client.list(PODS, "", _ON_MACHINE)).items) if is_on_machine(pod)]
    counts = Counter(_get_key(pod, jobs) for pod in pods)
    uids = {_get_key(pod, jobs): pod.uid for pod in pods}
    stopping = [_describe(key, jobs[key].uid if key in jobs else uids[key], counts[key]) for key in counts]
    suspended = [_describe(key, job.uid, counts[key]) for key, job in jobs.items() if is_suspended_by_drain(job)]
    return DrainState(node.drain, sorted(stopping, key=_get_place), sorted(suspended, key=_get_place))


def _describe(key: tuple[str, str, str], uid: str, pods: int) -> Stopping:
    kind, namespace, name = key
    return Stopping(kind, namespace, name, uid, pods)


def _get_place(one: Stopping) -> tuple[str, str, str]:
    return one.namespace, one.name, one.kind


async def list_pods_left(client: Client) -> set[str]:
    """The uids of the Pods that may still have processes. Cheaper than the whole state."""
    return {pod.uid for pod in map(Pod, (await client.list(PODS, "", _ON_MACHINE)).items) if is_on_machine(pod)}


def is_on_machine(pod: Pod) -> bool:
    """Whether it may have processes."""
    return bool(pod.node) and not pod.is_over and not pod.is_mirror


def is_suspended_by_drain(job: ObjectModel) -> bool:
    """Whether the end of the drain resumes it."""
    return SUSPENDED_BY_DRAIN in job.annotations and not _has_ended(job)


def _has_ended(job: ObjectModel) -> bool:
    return any(
        condition.get("type") in ("Complete", "Completed", "Failed", "Succeeded") and condition.get("status") == "True"
        for condition in job.conditions
    )


def _get_key(pod: Pod, jobs: _Jobs) -> tuple[str, str, str]:
    """(kind, namespace, name) of what the Pod belongs to."""
    for kind, model in TRAINING_KINDS.items():
        key = kind, pod.namespace, pod.labels.get(model.pod_label, "")
        if key in jobs and model.find_place(pod.raw) is not None:
            return key
    if pod.jobset and ("JobSet", pod.namespace, pod.jobset) in jobs:
        return "JobSet", pod.namespace, pod.jobset
    owner: Fields | None = pod.controller
    if owner is not None and owner.get("kind") == "Job":
        return "Job", pod.namespace, str(owner["name"])
    return "Pod", pod.namespace, pod.name
