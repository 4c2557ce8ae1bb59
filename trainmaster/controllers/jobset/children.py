"""Names, labels and bodies of a JobSet's Service and Jobs, and which bucket an existing Job belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api import labels
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.controllers.ownership import build_owner_reference


@dataclass(slots=True)
class Buckets:
    """The JobSet's Jobs. `previous` belong to an earlier attempt and are on their way out."""

    previous: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)
    succeeded: list[Object] = field(default_factory=list)
    active: list[Object] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        every = (*self.previous, *self.failed, *self.succeeded, *self.active)
        return {job["metadata"]["name"] for job in every}


def sort_jobs(jobs: Sequence[Object], restarts: int) -> Buckets:
    buckets = Buckets()
    for job in jobs:
        attempt = int((job["metadata"].get("labels") or {}).get(labels.RESTART_ATTEMPT, "0"))
        conditions = list_conditions(job)
        if attempt < restarts:
            buckets.previous.append(job)
        elif is_true(conditions, "Failed"):
            buckets.failed.append(job)
        elif is_true(conditions, "Complete"):
            buckets.succeeded.append(job)
        else:
            buckets.active.append(job)
    return buckets


def get_subdomain(jobset: Object) -> str:
    return str((jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"])


def has_dns(jobset: Object) -> bool:
    return (jobset["spec"].get("network") or {}).get("enableDNSHostnames") is not False


def list_replicated(jobset: Object) -> Sequence[Mapping[str, Any]]:
    return jobset["spec"].get("replicatedJobs") or ()


def count_replicas(replicated: Mapping[str, Any]) -> int:
    return int(replicated.get("replicas", 1))


def build_service(jobset: Object) -> Object:
    network = jobset["spec"].get("network") or {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": get_subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "ownerReferences": [build_owner_reference(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {labels.JOBSET_NAME: jobset["metadata"]["name"]},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses") is not False,
        },
    }


@dataclass(frozen=True, slots=True)
class Place:
    """Where one Job stands: index within its ReplicatedJob, over all, and within its group."""

    replicated: Mapping[str, Any]
    index: int
    global_index: int
    group_index: int


def list_places(jobset: Object) -> Iterator[Place]:
    global_index = 0
    group_counts: dict[str, int] = {}
    for replicated in list_replicated(jobset):
        group = replicated.get("groupName", "default")
        for index in range(count_replicas(replicated)):
            yield Place(replicated, index, global_index, group_counts.get(group, 0))
            group_counts[group] = group_counts.get(group, 0) + 1
            global_index += 1


def get_job_name(jobset: Object, place: Place) -> str:
    return f"{jobset['metadata']['name']}-{place.replicated['name']}-{place.index}"


def build_job(jobset: Object, place: Place, restarts: int) -> Object:
    meta = jobset["metadata"]
    name = get_job_name(jobset, place)
    marks = _build_marks(jobset, place, name, restarts)
    template = place.replicated["template"]
    own = template.get("metadata") or {}
    spec = dict(template.get("spec") or {})
    pod = dict(spec.get("template") or {})
    pod_meta = dict(pod.get("metadata") or {})
    for key in ("labels", "annotations"):
        pod_meta[key] = {**(pod_meta.get(key) or {}), **marks}
    # The API server defaults both when a JobSet is created; an object that lost them since must not change meaning.
    pod_spec = {"restartPolicy": "OnFailure", **(pod.get("spec") or {})}
    spec.setdefault("completionMode", "Indexed")
    if has_dns(jobset):
        pod_spec["subdomain"] = get_subdomain(jobset)
    spec["template"] = {**pod, "metadata": pod_meta, "spec": pod_spec}
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**(own.get("labels") or {}), **marks},
            "annotations": {**(own.get("annotations") or {}), **marks},
            "ownerReferences": [build_owner_reference(jobset)],
        },
        "spec": spec,
    }


def _build_marks(jobset: Object, place: Place, name: str, restarts: int) -> dict[str, str]:
    """The same keys and values go into labels and annotations of the Job and of its Pods."""
    meta = jobset["metadata"]
    group = place.replicated.get("groupName", "default")
    every = list_replicated(jobset)
    in_group = sum(count_replicas(other) for other in every if other.get("groupName", "default") == group)
    # SHA-1 is upstream's choice; the key is compared with theirs and protects nothing.
    key = hashlib.sha1(f"{meta['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest()
    return {
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
