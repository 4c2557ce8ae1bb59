"""The PodGroup of a v1 job on a cluster whose scheduler reads them, as upstream creates it. Pure.

On one machine there is none: our own scheduler places the Pods of a job together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.patches import merge
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_text
from trainmaster.api.v1jobs.replicas import ReplicaSpec
from trainmaster.controllers.frameworks.coscheduling import POD_LABEL
from trainmaster.controllers.frameworks.gangs import Measures, measure, sum_measures
from trainmaster.controllers.frameworks.volcano import POD_ANNOTATION
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.controllers.waiting import Waiting
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.v1jobs import V1Job

TASK_ANNOTATION = "volcano.sh/task-spec"
DEFAULT_QUEUE = "default"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_FIELDS = ("minMember", "minResources", "queue", "priorityClassName", "scheduleTimeoutSeconds")
_NOT_ADMITTED = ("", "Pending")

GetPriority = Callable[[str], int]
"""The value of the PriorityClass with that name; 0 if there is none."""


def build_pod_group(job: V1Job, cluster: V1Cluster, get_priority: GetPriority) -> Object:
    policy = read_fields(job.policy, "schedulingPolicy")
    members = policy.get("minAvailable")
    if members is None:
        members = sum(replica.count for replica in job.replicas.values())
    resources = policy.get("minResources")
    if resources is None:
        resources = sum_measures(_list_first(job, members, get_priority))
    spec: Object = {"minMember": members}
    if resources:
        spec["minResources"] = {
            name: quantity.canonical(value) if quantity.is_valid(value) else value for name, value in resources.items()
        }
    if cluster.is_volcano:
        spec["queue"] = read_text(policy, "queue") or DEFAULT_QUEUE
        if policy.get("priorityClass"):
            spec["priorityClassName"] = policy["priorityClass"]
    elif policy.get("scheduleTimeoutSeconds") is not None:
        spec["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
    meta: Object = {
        "name": job.name,
        "namespace": job.namespace,
        "ownerReferences": [build_owner_reference(job.raw)],
    }
    annotations = {name: text for name, text in job.annotations.items() if name != _LAST_APPLIED}
    if annotations:
        meta["annotations"] = annotations
    gvr = cluster.pod_groups
    assert gvr is not None
    return {"apiVersion": f"{gvr.group}/{gvr.version}", "kind": "PodGroup", "metadata": meta, "spec": spec}


def _list_first(job: V1Job, members: int, get_priority: GetPriority) -> Iterator[tuple[Measures, int]]:
    """What the first `members` Pods request, those of the highest priority first. A container without requests counts
    with its limits."""
    ordered = sorted(
        job.replicas.values(),
        key=lambda replica: get_priority(read_text(replica.pod_spec, "priorityClassName")),
        reverse=True,
    )
    for replica in ordered:
        taken = max(0, min(replica.count, members))
        members -= taken
        for container in list_items(replica.pod_spec, "containers"):
            resources = read_fields(container, "resources")
            yield measure(read_fields(resources, "requests" if resources.get("requests") else "limits")), taken


def build_change(group: ObjectModel, wanted: Object) -> Object:
    """The merge patch of a PodGroup that exists; empty if it is up to date. It stays in its queue, as upstream."""
    before = {name: group.spec[name] for name in _FIELDS if name in group.spec}
    after = dict(wanted["spec"])
    if before.get("queue"):
        after["queue"] = before["queue"]
    changed = merge.build_patch(before, after)
    return {"spec": changed} if changed else {}


def find_queued(cluster: V1Cluster, group: ObjectModel | None) -> Waiting | None:
    """Why no Pod is created yet: Volcano first admits a PodGroup to its queue."""
    if not cluster.is_volcano:
        return None
    if group is not None and read_text(group.status, "phase") not in _NOT_ADMITTED:
        return None
    queue = DEFAULT_QUEUE if group is None else read_text(group.spec, "queue")
    return Waiting("Queued", f'its PodGroup waits until Volcano admits it to the queue "{queue}"')


def decorate(pod: Object, job: V1Job, replica: ReplicaSpec, cluster: V1Cluster) -> None:
    """Adds what the scheduler needs to find the PodGroup of a Pod."""
    meta, spec = pod["metadata"], pod["spec"]
    if not spec.get("schedulerName"):
        spec["schedulerName"] = cluster.scheduler_name
    if cluster.is_volcano:
        own = {POD_ANNOTATION: job.name, TASK_ANNOTATION: replica.word}
        meta["annotations"] = {**read_annotations(pod), **own}
    else:
        meta["labels"] = {**meta["labels"], POD_LABEL: job.name}


def names_other_scheduler(replica: ReplicaSpec, cluster: V1Cluster) -> bool:
    return replica.pod_spec.get("schedulerName") not in (None, "", cluster.scheduler_name)
