"""Bodies of a JobSet's Service and Jobs, and which bucket an existing Job belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api import labels
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.controllers.jobset import volumes
from trainmaster.controllers.jobset.places import (
    JobPlace,
    count_replicas,
    find_coordinator,
    get_group,
    get_job_name,
    get_subdomain,
    has_dns,
    is_suspended,
    list_job_restarts,
    list_replicated,
    restarts_single_jobs,
)
from trainmaster.controllers.ownership import build_owner_reference


@dataclass(slots=True)
class ChildJobs:
    """The JobSet's Jobs. `previous` belong to an earlier attempt and are on their way out."""

    previous: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)
    succeeded: list[Object] = field(default_factory=list)
    active: list[Object] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Labels that somebody else has damaged; nobody knows which attempt such a Job belongs to."""

    @property
    def names(self) -> set[str]:
        return {job["metadata"]["name"] for job in self._every}

    @property
    def uids(self) -> set[str]:
        return {job["metadata"]["uid"] for job in self._every}

    @property
    def _every(self) -> tuple[Object, ...]:
        return (*self.previous, *self.failed, *self.succeeded, *self.active)


def sort_jobs(jobset: Object, jobs: Sequence[Object]) -> ChildJobs:
    buckets = ChildJobs()
    singly = restarts_single_jobs(jobset)
    for job in jobs:
        conditions = list_conditions(job)
        try:
            is_previous = _is_previous(jobset, job, singly=singly)
        except ValueError as error:
            buckets.faults.append(str(error))
            is_previous = False
        if is_previous:
            buckets.previous.append(job)
        elif is_true(conditions, "Failed"):
            buckets.failed.append(job)
        elif is_true(conditions, "Complete"):
            buckets.succeeded.append(job)
        else:
            # Also a Job that is about to end (FailureTarget, SuccessCriteriaMet): its Pods still run.
            buckets.active.append(job)
    return buckets


def _is_previous(jobset: Object, job: Object, *, singly: bool) -> bool:
    if _read_number(job, labels.RESTART_ATTEMPT) < (jobset.get("status") or {}).get("restarts", 0):
        return True
    if not singly:
        return False
    restarts = list_job_restarts(jobset, job["metadata"]["labels"].get(labels.REPLICATED_JOB_NAME, ""))
    index = _read_number(job, labels.JOB_INDEX)
    # A Job that was made before a rule asked for the label has not been restarted alone before.
    attempt = _read_number(job, labels.JOB_RESTART_ATTEMPT, "0")
    return index < len(restarts) and attempt < restarts[index]


def _read_number(job: Object, key: str, missing: str = "") -> int:
    value = str((job["metadata"].get("labels") or {}).get(key, missing))
    if not value.isdecimal():
        name = job["metadata"]["name"]
        raise ValueError(
            f'the label {key} of job "{name}" must be a number, not "{value}"; restore it or delete the job'
        )
    return int(value)


def build_service(jobset: Object) -> Object:
    network = jobset["spec"].get("network") or {}
    spec: dict[str, Any] = {"clusterIP": "None", "selector": {labels.JOBSET_NAME: jobset["metadata"]["name"]}}
    if network.get("publishNotReadyAddresses") is not False:
        spec["publishNotReadyAddresses"] = True
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": get_subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "ownerReferences": [build_owner_reference(jobset)],
        },
        "spec": spec,
    }


def build_job(jobset: Object, place: JobPlace, restarts: int) -> Object:
    name = get_job_name(jobset, place)
    marks = _build_marks(jobset, place, name, restarts)
    placement = find_placement(jobset, place.replicated)
    template = place.replicated["template"]
    own = template.get("metadata") or {}
    spec = dict(template.get("spec") or {})
    # A Job that its TTL takes away would be made, and run, once more. It gets its TTL when the JobSet has ended.
    spec.pop("ttlSecondsAfterFinished", None)
    pod = dict(spec.get("template") or {})
    pod_meta = dict(pod.get("metadata") or {})
    pod_meta["labels"] = {**(pod_meta.get("labels") or {}), **marks}
    pod_meta["annotations"] = {**(pod_meta.get("annotations") or {}), **marks, **placement}
    # The API server defaults both when a JobSet is created; an object that lost them since must not change meaning.
    pod_spec = {"restartPolicy": "OnFailure", **(pod.get("spec") or {})}
    spec.setdefault("completionMode", "Indexed")
    if has_dns(jobset):
        pod_spec["subdomain"] = get_subdomain(jobset)
    if labels.NODE_SELECTOR_STRATEGY in placement:
        _select_nodes(pod_spec, f"{jobset['metadata']['namespace']}_{name}")
    volumes.add_volumes(jobset, pod_spec)
    spec["template"] = {**pod, "metadata": pod_meta, "spec": pod_spec}
    spec["suspend"] = is_suspended(jobset)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": jobset["metadata"]["namespace"],
            "labels": {**(own.get("labels") or {}), **marks},
            "annotations": {**(own.get("annotations") or {}), **marks, **placement},
            "ownerReferences": [build_owner_reference(jobset)],
        },
        "spec": spec,
    }


def find_placement(jobset: Object, replicated: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of exclusive placement: the JobSet's, and over them the template's. The strategy counts only
    beside the topology of the same level."""
    found: dict[str, str] = {}
    for meta in (jobset["metadata"], replicated["template"].get("metadata") or {}):
        given = meta.get("annotations") or {}
        if labels.EXCLUSIVE_TOPOLOGY in given:
            keys = (labels.EXCLUSIVE_TOPOLOGY, labels.NODE_SELECTOR_STRATEGY)
            found.update({key: given[key] for key in keys if key in given})
    return found


def _select_nodes(pod_spec: dict[str, Any], value: str) -> None:
    pod_spec["nodeSelector"] = {**(pod_spec.get("nodeSelector") or {}), labels.NAMESPACED_JOB: value}
    toleration = {"key": labels.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or ()), toleration]


def _build_marks(jobset: Object, place: JobPlace, name: str, restarts: int) -> dict[str, str]:
    """The same keys and values go into labels and annotations of the Job and of its Pods."""
    meta = jobset["metadata"]
    group = get_group(place.replicated)
    every = list_replicated(jobset)
    in_group = sum(count_replicas(other) for other in every if get_group(other) == group)
    # SHA-1 is upstream's choice; the key is compared with theirs and protects nothing.
    key = hashlib.sha1(f"{meta['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest()
    marks = {
        labels.JOBSET_NAME: meta["name"],
        labels.JOBSET_UID: meta["uid"],
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
