"""Builders and collections that the tests of the Client contract use."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import AlreadyExists, StatusError
from trainmaster.client.contract import Client

CONFIG_MAPS = GVR("", "v1", "configmaps")
DEFINITIONS = GVR("apiextensions.k8s.io", "v1", "customresourcedefinitions")
EVENTS = GVR("", "v1", "events")
JOBS = GVR("batch", "v1", "jobs")
JOB_SETS = GVR("jobset.x-k8s.io", "v1alpha2", "jobsets")
LEASES = GVR("coordination.k8s.io", "v1", "leases")
NAMESPACES = GVR("", "v1", "namespaces")
NEW_EVENTS = GVR("events.k8s.io", "v1", "events")
PODS = GVR("", "v1", "pods")
RUNTIMES = GVR("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
SECRETS = GVR("", "v1", "secrets")
SERVICE_ACCOUNTS = GVR("", "v1", "serviceaccounts")
TRAIN_JOBS = GVR("trainer.kubeflow.org", "v1alpha1", "trainjobs")
TRAINING_RUNTIMES = GVR("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")


def make_config_map(name: str = "a", data: dict[str, str] | None = None, **metadata: Any) -> Object:
    obj: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    if data is not None:
        obj["data"] = data
    return obj


def make_pod(name: str = "p", *, node: str = "", metadata: Object | None = None) -> Object:
    spec: Object = {"containers": [{"name": "c", "image": "registry.example/image:1"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def make_job(name: str = "j") -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/image:1"}]}}
    # Suspended, so that no controller works on it.
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def make_train_job(name: str = "t", **spec: Any) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


async def ensure_runtime(client: Client) -> None:
    """The runtime that `make_train_job` names; a TrainJob needs it to be let in."""
    template = {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "registry.example/image:1"}]}}}}
    runtime = {
        "apiVersion": RUNTIMES.api_version,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
        "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}},
    }
    with suppress(AlreadyExists):
        await client.create(RUNTIMES, runtime)


def owned_by(owner: Object, **more: Any) -> Object:
    """An owner reference."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }


async def refusal(work: Awaitable[Any]) -> Object:
    """The Status that the call is refused with."""
    try:
        answer = await work
    except StatusError as error:
        status: Object = {"code": error.code, "reason": error.reason, "message": error.message}
        if error.details:
            status["details"] = error.details
        return status
    raise AssertionError(f"not refused: {answer!r}")
