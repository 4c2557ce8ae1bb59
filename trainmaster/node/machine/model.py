"""The parts of a Pod object that the state machine needs, with upstream's defaults: read once per version of the
object.

Pure. Does not contain fields that only launching needs (env, volumes, resources).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.v1jobs.frameworks import JOB_NAME
from trainmaster.api.v1jobs.waits import is_wait
from trainmaster.api.workloads import read_v1_gang
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import parse_time

DEFAULT_GRACE = 30


class ContainerRole(Enum):
    INIT = "init"
    SIDECAR = "sidecar"
    """An init container with restartPolicy Always: started before the main containers, stopped after them."""
    MAIN = "main"


class ProbeKind(Enum):
    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    handler: Fields
    """exec, httpGet, tcpSocket or grpc, as the API has it."""
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success: int = 1
    failure: int = 3
    grace: int | None = None
    """Replaces the Pod's grace period when this probe ends the container."""


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    name: str
    role: ContainerRole
    image: str = ""
    probes: Mapping[ProbeKind, ProbeSpec] | None = None
    post_start: Fields | None = None
    pre_stop: Fields | None = None
    stop_signal: int = int(signal.SIGTERM)
    is_satisfied: bool = False
    """An init container that only waits for the name of another Pod. Pods of a job know all names before they start, so
    it is complete without a process."""


@dataclass(frozen=True, slots=True)
class PodDeletion:
    requested: datetime
    """In whole seconds, as stored: up to one second early."""
    grace: int


@dataclass(frozen=True, slots=True)
class PodPlan:
    namespace: str
    name: str
    uid: str
    containers: tuple[ContainerPlan, ...]
    """Init containers and sidecars in order, then the main ones."""
    policy: str = "Always"
    grace: int = DEFAULT_GRACE
    active_deadline: int | None = None
    deletion: PodDeletion | None = None

    def get(self, name: str) -> ContainerPlan:
        return next(container for container in self.containers if container.name == name)

    @property
    def mains(self) -> tuple[ContainerPlan, ...]:
        return tuple(container for container in self.containers if container.role is ContainerRole.MAIN)

    @property
    def has_inits(self) -> bool:
        return self.containers[0].role is not ContainerRole.MAIN


def read_plan(pod: Pod) -> PodPlan:
    spec = pod.spec
    containers = [
        replace(_read_container(entry, is_init=True), is_satisfied=_is_satisfied(pod, entry))
        for entry in pod.init_containers
    ]
    containers += [_read_container(entry, is_init=False) for entry in pod.containers]
    grace = spec.get("terminationGracePeriodSeconds")
    return PodPlan(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        containers=tuple(containers),
        policy=spec.get("restartPolicy") or "Always",
        grace=DEFAULT_GRACE if grace is None else max(int(grace), 0),
        active_deadline=spec.get("activeDeadlineSeconds"),
        deletion=_read_deletion(pod.meta),
    )


def _is_satisfied(pod: Pod, container: Fields) -> bool:
    """Names come from the node (`node.network.leases`) for Pods that a v1 job controls."""
    job = pod.labels.get(JOB_NAME)
    return job is not None and bool(read_v1_gang(pod.raw)) and is_wait(container, f"{job}-master-0")


def _read_deletion(meta: Fields) -> PodDeletion | None:
    """The API server has added the grace period to the time of the request."""
    moment = meta.get("deletionTimestamp")
    if not moment:
        return None
    grace = int(meta.get("deletionGracePeriodSeconds") or 0)
    return PodDeletion(parse_time(moment) - timedelta(seconds=grace), grace)


def _read_container(entry: Fields, *, is_init: bool) -> ContainerPlan:
    role = ContainerRole.MAIN
    if is_init:
        role = ContainerRole.SIDECAR if entry.get("restartPolicy") == "Always" else ContainerRole.INIT
    lifecycle = read_fields(entry, "lifecycle")
    probes = {
        kind: _read_probe(entry[key])
        for kind, key in (
            (ProbeKind.STARTUP, "startupProbe"),
            (ProbeKind.READINESS, "readinessProbe"),
            (ProbeKind.LIVENESS, "livenessProbe"),
        )
        if entry.get(key)
    }
    return ContainerPlan(
        name=entry["name"],
        role=role,
        image=read_text(entry, "image"),
        probes=probes or None,
        post_start=lifecycle.get("postStart") or None,
        pre_stop=lifecycle.get("preStop") or None,
        stop_signal=_read_signal(lifecycle.get("stopSignal")),
    )


def _read_probe(raw: Fields) -> ProbeSpec:
    grace = raw.get("terminationGracePeriodSeconds")
    return ProbeSpec(
        handler=raw,
        initial_delay=float(raw.get("initialDelaySeconds") or 0),
        period=float(raw.get("periodSeconds") or 10),
        timeout=float(raw.get("timeoutSeconds") or 1),
        success=int(raw.get("successThreshold") or 1),
        failure=int(raw.get("failureThreshold") or 3),
        grace=None if grace is None else int(grace),
    )


def _read_signal(name: str | None) -> int:
    """SIGUSR1, or SIGRTMIN+3 as the API spells real-time signals; validation refuses everything else."""
    if not name:
        return int(signal.SIGTERM)
    base, _, offset = name.replace("-", "+-").partition("+")
    found = getattr(signal, base, None)
    return int(found) + int(offset or 0) if found is not None else int(signal.SIGTERM)
