"""The replicas of a v1 job with their defaults.

As upstream, defaults are never stored: whoever needs a value reads it through these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import NOTHING, list_items
from trainmaster.api.training.counts import MOST_PODS, find_excess
from trainmaster.api.v1jobs.frameworks import LAUNCHER, MPI, MXNET, TENSORFLOW, WORKER, XGBOOST, V1Framework
from trainmaster.api.v1jobs.mpijobs import build_launcher_name

_MOST_LISTED = 2_000
"""The most Pods of a framework whose Pods have the addresses of all others in a variable."""


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    type: str
    count: int
    restart_policy: str
    template: Fields

    @property
    def word(self) -> str:
        """The type in names and labels."""
        return self.type.lower()

    @property
    def pod_spec(self) -> Fields:
        spec: Fields = self.template.get("spec") or NOTHING
        return spec

    @property
    def pod_restart_policy(self) -> str:
        """The policy of its Pods: with ExitCode the controller restarts them, not the node."""
        return "Never" if self.restart_policy == "ExitCode" else self.restart_policy


def canonicalize(framework: V1Framework, name: str) -> str:
    """The type that a key in the map stands for, whatever its case."""
    return next((known for known in framework.types if known.lower() == name.lower()), name)


def read_replicas(framework: V1Framework, spec: Fields) -> dict[str, ReplicaSpec]:
    """By type, in the order of `V1Framework.types`."""
    raw: Mapping[str, Fields | None] = spec.get(framework.replicas_field) or NOTHING
    found = {canonicalize(framework, name): entry or NOTHING for name, entry in raw.items()}
    known = [name for name in framework.types if name in found]
    unknown = sorted(set(found) - set(known))
    return {name: _read(framework, name, found[name]) for name in (*known, *unknown)}


def _read(framework: V1Framework, name: str, entry: Fields) -> ReplicaSpec:
    count = entry.get("replicas")
    if count is None:
        count = 0 if framework is MPI and name == WORKER else 1
    policy = entry.get("restartPolicy") or framework.restart_policy
    return ReplicaSpec(name, count, policy, entry.get("template") or NOTHING)


def find_surplus(framework: V1Framework, replicas: Mapping[str, ReplicaSpec]) -> str:
    """Why a job has too many Pods; "" if it has not."""
    most = _MOST_LISTED if framework in (TENSORFLOW, XGBOOST, MXNET) else MOST_PODS
    return find_excess(sum(replica.count for replica in replicas.values()), most)


def build_pod_name(job: str, replica: ReplicaSpec, index: int) -> str:
    """Of a Pod and of its Service, as upstream."""
    return build_launcher_name(job) if replica.type == LAUNCHER else f"{job}-{replica.word}-{index}"


def get_port(framework: V1Framework, replica: ReplicaSpec) -> int:
    """The port that the framework's container listens on."""
    for container in list_items(replica.pod_spec, "containers"):
        if container.get("name") == framework.container:
            for port in container.get("ports") or ():
                if port.get("name") == framework.port_name:
                    return int(port["containerPort"])
    return framework.port


def add_port(framework: V1Framework, containers: list[Object]) -> None:
    """Adds the framework's port to its container (to the first one if there is none of that name), unless a port has
    the name already. Changes the list in place."""
    if not containers:
        return
    names = [container.get("name") for container in containers]
    at = names.index(framework.container) if framework.container in names else 0
    ports = containers[at].get("ports") or []
    if not any(port.get("name") == framework.port_name for port in ports):
        port = {"name": framework.port_name, "containerPort": framework.port}
        containers[at] = {**containers[at], "ports": [*ports, port]}
