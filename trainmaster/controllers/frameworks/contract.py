"""The interface between the TrainJob controller and the frameworks. Frameworks import `api` only, and are pure.

A framework returns data: how many Pods each job has, what goes into which container, and which objects the job needs
besides its JobSet. Key pairs must be random, so the `FrameworkContext` provides the functions that make them; they are
called only if the object does not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.api.labels import COMPLETION_INDEX
from trainmaster.api.lifecycle.stalls import StallRules
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.api.training.steps import NODE
from trainmaster.controllers.frameworks import keys

COORDINATOR_PORT = 29500
"""The rendezvous port of Torch, JAX and XGBoost in every Pod."""
RANK: Fields = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
"""The completion index of a Pod, as the value of an environment variable."""


@dataclass(frozen=True, slots=True)
class ProgressServer:
    """The server that training code reports its progress to."""

    url: str
    """Scheme, host and port. May refer to environment variables of the Pod as `$(NAME)`."""
    ca: str = ""
    """The certificates to verify the server with, in PEM; "" means those of the API server."""


@dataclass(frozen=True, slots=True)
class FrameworkContext:
    """The environment of the controllers, and functions that are not pure."""

    on_cluster: bool = False
    """Whether this is a Kubernetes cluster, where other components can handle PodGroups and Flux."""
    logs_as_messages: bool = False
    """Whether containers get the end of their log as termination message when they fail without one. On one machine
    the node does this for all."""
    progress: ProgressServer | None = None
    """None: containers get no progress variables. Corresponds to upstream's feature gate `TrainJobStatus` being off."""
    sees_secrets: bool = True
    """Whether the view shows Secrets. Otherwise they are created without looking."""
    stalls: StallRules = field(default_factory=StallRules)
    """When a running job counts as stalled."""
    make_ssh_keys: Callable[[], keys.KeyPair] = keys.make_ssh_keys
    make_curve_keys: Callable[[], keys.KeyPair] = keys.make_curve_keys


@dataclass(frozen=True, slots=True)
class Training:
    """One TrainJob as its framework sees it."""

    name: str
    namespace: str
    runtime_name: str
    policy: Fields
    """The framework's section of the runtime's mlPolicy."""
    trainer: Fields
    """spec.trainer; empty when the TrainJob has none."""
    jobs: Sequence[Object]
    """`replicatedJobs` with the TrainJob's values filled in. Read-only."""
    counts: Mapping[str, int]
    """The number of Pods of each job so far: from the template or, for the trainer, from mlPolicy or the TrainJob."""
    trainer_job: str
    """The name of the job with the label `trainer`; "" if there is none."""
    resources: Fields
    """Requests and limits of one node's trainer container."""
    runtime_command: Sequence[str]
    """The command of the trainer container in the runtime."""
    runtime_env: Sequence[Fields]
    """The environment of the trainer container in the runtime."""
    subdomain: str
    """The domain of the Pods' DNS names: the runtime's, otherwise the job's name."""

    @property
    def num_nodes(self) -> int:
        return self.counts.get(self.trainer_job, 1)

    @property
    def num_proc_per_node(self) -> int | str | None:
        """An int, `auto`, `cpu` or `gpu`, from the TrainJob, otherwise from the runtime; None if neither sets it."""
        asked = self.trainer.get("numProcPerNode")
        return self.policy.get("numProcPerNode") if asked is None else asked

    @property
    def env(self) -> tuple[Fields, ...]:
        return tuple(list_items(self.trainer, "env"))

    @property
    def coordinator(self) -> str:
        """The stable DNS name of the first node."""
        job = self.trainer_job or NODE
        return f"{self.name}-{job}-0-0.{self.subdomain}"


@dataclass(frozen=True, slots=True)
class ContainerPart:
    """What is added to one container and its Pod. Existing entries with the same name, port or path are replaced."""

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
    """Whether to remove the arguments, because the command contains them."""


@dataclass(frozen=True, slots=True)
class Companion:
    """An object that the job needs besides its JobSet."""

    gvr: GVR
    kind: str
    name: str
    make: Callable[[], Object]
    """The fields of the object other than apiVersion, kind and metadata."""
    once: bool = False
    """Whether the object is created if missing and never updated, because it contains a secret."""


@dataclass(frozen=True, slots=True)
class Injection:
    counts: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[ContainerPart, ...] = ()
    companions: tuple[Companion, ...] = ()
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    """How this installation deviates from what the runtime asks for; a sentence for an event."""


@dataclass(frozen=True, slots=True)
class Framework:
    name: str
    inject: Callable[[Training, FrameworkContext], Injection]
    list_problems: Callable[[Training, FrameworkContext], Sequence[str]]
    """Returns sentences that say which parts of the policy, or of the job under it, are not supported."""


def list_no_problems(training: Training, context: FrameworkContext) -> Sequence[str]:
    return ()
