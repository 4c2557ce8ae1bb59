"""The Pods and Services of a v1 job, as upstream creates them. Pure."""

from __future__ import annotations

from trainmaster.api.labels import FIRST_ATTEMPT, POD_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_annotations, read_labels, read_metadata
from trainmaster.api.v1jobs.frameworks import LAUNCHER, MASTER, MPI, PYTORCH, TENSORFLOW, WORKER
from trainmaster.api.v1jobs.replicas import ReplicaSpec, add_port
from trainmaster.api.v1jobs.waits import build_wait
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.v1jobs import mpi
from trainmaster.controllers.v1jobs.names import build_labels, build_name, build_pod_labels
from trainmaster.controllers.v1jobs.variables import list_variables
from trainmaster.jobs.models.v1jobs import V1Job


def build_pod(job: V1Job, replica: ReplicaSpec, index: int) -> Object:
    template = read_metadata(replica.template)
    meta: Object = {
        "name": build_name(job, replica, index),
        "namespace": job.namespace,
        "labels": {**read_labels(replica.template), **build_pod_labels(job, replica, index)},
        "ownerReferences": [build_owner_reference(job.raw)],
    }
    annotations = dict(read_annotations(replica.template))
    for key, number in ((POD_ATTEMPT, job.attempt), (FIRST_ATTEMPT, job.wanted_attempt)):
        if number:
            annotations[key] = str(number)
    if annotations:
        meta["annotations"] = annotations
    if template.get("finalizers"):
        meta["finalizers"] = list(template["finalizers"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _build_spec(job, replica, index)}


def _build_spec(job: V1Job, replica: ReplicaSpec, index: int) -> Object:
    spec: Object = {**replica.pod_spec, "restartPolicy": replica.pod_restart_policy}
    containers = list(list_items(spec, "containers"))
    if job.framework is MPI:
        return mpi.complete(job, replica, spec, containers)
    add_port(job.framework, containers)
    variables = list_variables(job, replica, index)
    only = job.framework.container if job.framework is TENSORFLOW else None
    spec["containers"] = [
        {**container, "env": [*list_items(container, "env"), *variables]}
        if variables and only in (None, container.get("name"))
        else container
        for container in containers
    ]
    if job.framework is PYTORCH and replica.type == WORKER and MASTER in job.replicas:
        master = build_name(job, job.replicas[MASTER], 0)
        spec["initContainers"] = [*list_items(spec, "initContainers"), build_wait(master)]
    return spec


def build_service(job: V1Job, replica: ReplicaSpec, index: int) -> Object:
    """A headless Service, so that the Pod's name can be resolved."""
    labels = build_labels(job, replica, index)
    containers = list(list_items(replica.pod_spec, "containers"))
    add_port(job.framework, containers)
    ports = [
        {"name": port["name"], "port": port["containerPort"]}
        for container in containers
        if container.get("name") == job.framework.container
        for port in list_items(container, "ports")
        if port.get("name")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": build_name(job, replica, index),
            "namespace": job.namespace,
            "labels": labels,
            "ownerReferences": [build_owner_reference(job.raw)],
        },
        "spec": {"clusterIP": "None", "selector": labels, "ports": ports},
    }


def sets_restart_policy(replica: ReplicaSpec) -> bool:
    """Whether the template has a restart policy of its own, which has no effect."""
    return bool(replica.pod_spec.get("restartPolicy"))


def describe_created(job: V1Job, replica: ReplicaSpec, name: str) -> str:
    is_worker = job.framework is MPI and replica.type != LAUNCHER
    return f"Created worker pod: {name}" if is_worker else f"Created pod: {name}"
