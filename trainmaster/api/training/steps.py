"""The jobs of a runtime that are steps of a TrainJob, and their numbers of Pods.

A job is a step of the TrainJob by the label `trainjob-ancestor-step` on its Job template: `trainer`,
`dataset-initializer` or `model-initializer`. Its main container has a fixed name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api.labels import ANCESTOR_STEP
from trainmaster.api.meta import Object

TRAINER = "trainer"
DATASET = "dataset-initializer"
MODEL = "model-initializer"
NODE = "node"
"""Name of the trainer's container, and in MPI runtimes of the workers' job."""
LAUNCHER = "launcher"
MAIN_CONTAINER: Mapping[str, str] = {TRAINER: NODE, DATASET: DATASET, MODEL: MODEL}
INITIALIZERS: Mapping[str, str] = {DATASET: "dataset", MODEL: "model"}
"""The initializer's field in `spec.initializer` of a TrainJob."""
POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")


def list_jobs(spec: Mapping[str, Any]) -> list[Object]:
    """The replicatedJobs of a JobSet spec."""
    jobs: list[Object] = spec.get("replicatedJobs") or []
    return jobs


def get_runtime_spec(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of a runtime, which may be missing: upstream's CRD does not require one and refuses an empty one, so it
    cannot be defaulted."""
    spec: Mapping[str, Any] = runtime.get("spec") or {}
    return spec


def get_template_spec(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JobSet spec inside a runtime."""
    spec: Mapping[str, Any] = (get_runtime_spec(runtime).get("template") or {}).get("spec") or {}
    return spec


def get_ml_policy(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    policy: Mapping[str, Any] = get_runtime_spec(runtime).get("mlPolicy") or {}
    return policy


def find_ancestor(job: Mapping[str, Any]) -> str | None:
    labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    value = labels.get(ANCESTOR_STEP)
    return value if isinstance(value, str) else None


def find_trainer(spec: Mapping[str, Any]) -> Object | None:
    return next((job for job in list_jobs(spec) if find_ancestor(job) == TRAINER), None)


def find_job(spec: Mapping[str, Any], name: str) -> Object | None:
    return next((job for job in list_jobs(spec) if job.get("name") == name), None)


def get_pod(job: Mapping[str, Any]) -> Object:
    """The Pod spec of a job's template; a new empty one when there is none."""
    template = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
    pod: Object = template.get("spec") or {}
    return pod


def list_containers(job: Mapping[str, Any], group: str = "containers") -> list[Object]:
    containers: list[Object] = get_pod(job).get(group) or []
    return containers


def find_container(job: Mapping[str, Any], name: str) -> Object | None:
    return next((container for container in list_containers(job) if container.get("name") == name), None)


def list_container_names(job: Mapping[str, Any], group: str = "containers") -> list[str]:
    return [container.get("name", "") for container in list_containers(job, group)]


def read_framework(runtime: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and values of the framework that the runtime's mlPolicy names; ("", {}) when it names none."""
    policy = get_ml_policy(runtime)
    for name in POLICIES:
        if isinstance(policy.get(name), Mapping):
            return name, policy[name]
    return "", {}


def decide_num_nodes(trainjob: Mapping[str, Any], runtime: Mapping[str, Any], parallelism: int = 1) -> int:
    """The TrainJob's number, else the policy's, else the job template's."""
    asked = ((trainjob.get("spec") or {}).get("trainer") or {}).get("numNodes")
    if asked is not None:
        return int(asked)
    policy = get_runtime_spec(runtime).get("mlPolicy")
    if policy is None:
        return max(1, parallelism)
    return max(1, int(policy.get("numNodes") or 1))


def list_node_jobs(runtime: Mapping[str, Any], jobs: Sequence[Object]) -> list[Object]:
    """The jobs whose container `node` gets the TrainJob's resources: the trainer, and MPI workers that run ranks
    beside a launcher which runs ranks too."""
    policy_name, policy = read_framework(runtime)
    workers = policy_name == "mpi" and policy.get("runLauncherAsNode")
    return [job for job in jobs if find_ancestor(job) == TRAINER or (workers and job.get("name") == NODE)]
