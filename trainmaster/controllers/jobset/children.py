"""Builds a JobSet's Service and Jobs, and groups its existing Jobs by state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainmaster.api import labels
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_labels, read_metadata, read_spec
from trainmaster.controllers.jobset import volumes
from trainmaster.controllers.jobset.job_indexes import (
    JobIndexes,
    count_replicas,
    find_coordinator,
    get_group,
    get_job_name,
    list_job_restarts,
    restarts_single_jobs,
)
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet


@dataclass(slots=True)
class ChildJobs:
    """The JobSet's Jobs by state. Those in `previous` belong to an earlier attempt and are being deleted."""

    previous: list[Job] = field(default_factory=list)
    failed: list[Job] = field(default_factory=list)
    succeeded: list[Job] = field(default_factory=list)
    active: list[Job] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Errors about labels that somebody has changed, so that the attempt of the Job is unknown."""

    @property
    def is_empty(self) -> bool:
        return not (self.previous or self.failed or self.succeeded or self.active)

    @property
    def names(self) -> set[str]:
        return {job.name for job in self._every}

    @property
    def uids(self) -> set[str]:
        return {job.uid for job in self._every}

    @property
    def _every(self) -> tuple[Job, ...]:
        return (*self.previous, *self.failed, *self.succeeded, *self.active)


def sort_jobs(jobset: JobSet, jobs: Iterable[Job]) -> ChildJobs:
    buckets = ChildJobs()
    singly = restarts_single_jobs(jobset)
    for job in jobs:
        try:
            is_previous = _is_previous(jobset, job, singly=singly)
        except ValueError as error:
            buckets.faults.append(str(error))
            is_previous = False
        if is_previous:
            buckets.previous.append(job)
        elif job.is_true("Failed"):
            buckets.failed.append(job)
        elif job.is_true("Complete"):
            buckets.succeeded.append(job)
        else:
            # This includes Jobs that are about to end (FailureTarget, SuccessCriteriaMet), because their Pods are still
            # running.
            buckets.active.append(job)
    return buckets


def _is_previous(jobset: JobSet, job: Job, *, singly: bool) -> bool:
    if _read_number(job, labels.RESTART_ATTEMPT) < jobset.restarts:
        return True
    if not singly:
        return False
    restarts = list_job_restarts(jobset, job.step)
    index = _read_number(job, labels.JOB_INDEX)
    # A Job created before a rule required the label has not been restarted individually.
    attempt = _read_number(job, labels.JOB_RESTART_ATTEMPT, "0")
    return index < len(restarts) and attempt < restarts[index]


def _read_number(job: Job, key: str, missing: str = "") -> int:
    value = str(job.labels.get(key, missing))
    if not value.isdecimal():
        raise ValueError(
            f'the label {key} of job "{job.name}" must be a number, not "{value}"; restore it or delete the job'
        )
    return int(value)


def build_service(jobset: JobSet) -> Object:
    spec: Object = {"clusterIP": "None", "selector": {labels.JOBSET_NAME: jobset.name}}
    if jobset.network.get("publishNotReadyAddresses") is not False:
        spec["publishNotReadyAddresses"] = True
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": jobset.subdomain,
            "namespace": jobset.namespace,
            "ownerReferences": [build_owner_reference(jobset.raw)],
        },
        "spec": spec,
    }


def build_job(jobset: JobSet, place: JobIndexes, restarts: int) -> Object:
    name = get_job_name(jobset, place)
    marks = _build_marks(jobset, place, name, restarts)
    placement = get_placement(jobset, place.replicated)
    template = place.replicated["template"]
    spec = dict(read_spec(template))
    # A Job deleted by its TTL would be created and run again. Its TTL is set when the JobSet has finished.
    spec.pop("ttlSecondsAfterFinished", None)
    pod = read_fields(spec, "template")
    pod_meta = dict(read_metadata(pod))
    pod_meta["labels"] = {**read_labels(pod), **marks}
    pod_meta["annotations"] = {**read_annotations(pod), **marks, **placement}
    # The API server sets both defaults when a JobSet is created; keep them for an object that has lost them since.
    pod_spec: Object = {"restartPolicy": "OnFailure", **read_spec(pod)}
    spec.setdefault("completionMode", "Indexed")
    if jobset.has_dns:
        pod_spec["subdomain"] = jobset.subdomain
    if labels.NODE_SELECTOR_STRATEGY in placement:
        _select_nodes(pod_spec, f"{jobset.namespace}_{name}")
    volumes.add_volumes(jobset, pod_spec)
    spec["template"] = {**pod, "metadata": pod_meta, "spec": pod_spec}
    spec["suspend"] = jobset.is_suspended
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": jobset.namespace,
            "labels": {**read_labels(template), **marks},
            "annotations": {**read_annotations(template), **marks, **placement},
            "ownerReferences": [build_owner_reference(jobset.raw)],
        },
        "spec": spec,
    }


def get_placement(jobset: JobSet, replicated: Fields) -> dict[str, str]:
    """The annotations of exclusive placement: the template's, otherwise the JobSet's. The strategy is used only
    together with the topology from the same level."""
    found: dict[str, str] = {}
    for given in (jobset.annotations, read_annotations(replicated["template"])):
        if labels.EXCLUSIVE_TOPOLOGY in given:
            keys = (labels.EXCLUSIVE_TOPOLOGY, labels.NODE_SELECTOR_STRATEGY)
            found.update({key: given[key] for key in keys if key in given})
    return found


def _select_nodes(pod_spec: Object, value: str) -> None:
    pod_spec["nodeSelector"] = {**read_fields(pod_spec, "nodeSelector"), labels.NAMESPACED_JOB: value}
    toleration = {"key": labels.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    pod_spec["tolerations"] = [*list_items(pod_spec, "tolerations"), toleration]


def _build_marks(jobset: JobSet, place: JobIndexes, name: str, restarts: int) -> dict[str, str]:
    """The keys and values that are both labels and annotations of the Job and its Pods."""
    group = get_group(place.replicated)
    every = jobset.replicated_jobs
    in_group = sum(count_replicas(other) for other in every if get_group(other) == group)
    # SHA-1 as upstream, because the key is compared with upstream's. It is not used for security.
    key = hashlib.sha1(f"{jobset.namespace}/{name}".encode(), usedforsecurity=False).hexdigest()
    marks = {
        labels.JOBSET_NAME: jobset.name,
        labels.JOBSET_UID: jobset.uid,
        labels.REPLICATED_JOB_NAME: place.replicated["name"],
        labels.REPLICATED_JOB_REPLICAS: str(count_replicas(place.replicated)),
        labels.GLOBAL_REPLICAS: str(sum(count_replicas(other) for other in every)),
        labels.JOB_INDEX: str(place.index),
        labels.JOB_GLOBAL_INDEX: str(place.global_index),
        labels.JOB_KEY: key,
        labels.GROUP_NAME: group,
        labels.GROUP_REPLICAS: str(in_group),
        labels.JOB_GROUP_INDEX: str(place.group_index),
        labels.RESTART_ATTEMPT: str(restarts),
    }
    if restarts_single_jobs(jobset):
        marks[labels.JOB_RESTART_ATTEMPT] = str(list_job_restarts(jobset, place.replicated["name"])[place.index])
    coordinator = find_coordinator(jobset)
    if coordinator is not None:
        marks[labels.COORDINATOR] = coordinator
    return marks
