"""What a framework is told about a job, and what it answers. Frameworks import `api` only, and are pure.

A framework answers with data: how many Pods each job has, what goes into which container, and which objects the job
needs beside its JobSet. Key pairs are the one thing that must be random; the `FrameworkContext` brings the functions
that make them, and they are called only when the object does not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.api.labels import COMPLETION_INDEX
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.api.training.steps import NODE
from trainmaster.controllers.frameworks import keys

COORDINATOR_PORT = 29500
"""Torch, JAX and XGBoost rendezvous on this port in every Pod."""
RANK: Fields = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
"""The number of a Pod within its Job, as the value of a variable."""


@dataclass(frozen=True, slots=True)
class ProgressServer:
    """Where training code reports to."""

    url: str
    """Scheme, host and port. It may name variables of the Pod, `$(NAME)`."""
    ca: str = ""
    """Certificates, PEM, that it is known by; "" are those of the API server."""


@dataclass(frozen=True, slots=True)
class FrameworkContext:
    """Where the controllers run, and what must come from outside a pure function."""

    on_cluster: bool = False
    """A Kubernetes cluster: PodGroups and Flux have somebody who understands them."""
    progress: ProgressServer | None = None
    """None: containers are told of none. Upstream's gate `TrainJobStatus`, off."""
    make_ssh_keys: Callable[[], keys.KeyPair] = keys.make_ssh_keys
    make_curve_keys: Callable[[], keys.KeyPair] = keys.make_curve_keys


@dataclass(frozen=True, slots=True)
class Training:
    """One TrainJob as its framework sees it."""

    name: str
    namespace: str
    runtime_name: str
    policy: Fields
    """The framework's own part of the runtime's mlPolicy."""
    trainer: Fields
    """spec.trainer; empty when the TrainJob has none."""
    jobs: Sequence[Object]
    """replicatedJobs with the TrainJob's values filled in. Read-only."""
    counts: Mapping[str, int]
    """Pods of each job so far: from the template, for the trainer from mlPolicy or the TrainJob."""
    trainer_job: str
    """Name of the job with the label `trainer`; "" when no job carries it."""
    resources: Fields
    """Requests and limits of one node's trainer container."""
    runtime_command: Sequence[str]
    """The trainer container's command in the runtime."""
    runtime_env: Sequence[Fields]
    """Its environment there."""
    subdomain: str
    """Under which the Pods' names resolve: the runtime's, else the job's name."""

    @property
    def num_nodes(self) -> int:
        return self.counts.get(self.trainer_job, 1)

    @property
    def num_proc_per_node(self) -> int | str | None:
        """int, `auto`, `cpu`, `gpu`: the TrainJob's, else the runtime's, else None."""
        asked = self.trainer.get("numProcPerNode")
        return self.policy.get("numProcPerNode") if asked is None else asked

    @property
    def env(self) -> tuple[Fields, ...]:
        return tuple(list_items(self.trainer, "env"))

    @property
    def coordinator(self) -> str:
        """The stable name of the first node."""
        job = self.trainer_job or NODE
        return f"{self.name}-{job}-0-0.{self.subdomain}"


@dataclass(frozen=True, slots=True)
class ContainerPart:
    """What goes into one container and its Pod. Entries of the same name, port or path are replaced."""

    job: str
    container: str = NODE
    env: tuple[Fields, ...] = ()
    ports: tuple[Fields, ...] = ()
    mounts: tuple[Fields, ...] = ()
    volumes: tuple[Fields, ...] = ()
    init_containers: tuple[Fields, ...] = ()
    command: tuple[str, ...] | None = None
    """Replaces the container's command."""
    drop_args: bool = False
    """The arguments have become part of the command."""


@dataclass(frozen=True, slots=True)
class Companion:
    """An object that the job needs beside its JobSet."""

    gvr: GVR
    kind: str
    name: str
    make: Callable[[], Object]
    """The object's fields apart from apiVersion, kind and metadata."""
    once: bool = False
    """Made when it is not there and then left alone: it holds a secret."""


@dataclass(frozen=True, slots=True)
class Injection:
    counts: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[ContainerPart, ...] = ()
    companions: tuple[Companion, ...] = ()
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    """What this installation does otherwise than the runtime asks, in a sentence for an event."""


@dataclass(frozen=True, slots=True)
class Framework:
    name: str
    inject: Callable[[Training, FrameworkContext], Injection]
    list_problems: Callable[[Training, FrameworkContext], Sequence[str]]
    """Sentences that say what of the policy, or of the job under it, cannot be carried out."""


def list_no_problems(training: Training, context: FrameworkContext) -> Sequence[str]:
    return ()
