"""The words of this package: why a container cannot start, where a Pod lives, and what was prepared for it.

`Site` is what the node decides about a Pod before anything is made; `Prepared` is what `Launcher.prepare` made of it.
Both are values: after a restart of the control plane they are built again and are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainmaster.api.meta import Fields, Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Environment
from trainmaster.node.launch.budgets import TenantBudget
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import PLAIN

CONFIG_ERROR = "CreateContainerConfigError"
"""The container waits: something it names in its environment is not there yet."""
FAILED_MOUNT = "FailedMount"
"""The Pod waits as ContainerCreating, with this event: a volume cannot be made yet."""
IMAGE_ERROR = "ErrImagePull"
"""The container waits: no rule gives its image a Python environment, or the environment cannot be made."""
START_ERROR = "StartError"
"""The program cannot be executed; ends the attempt with code 128."""
UNSUPPORTED = "Unsupported"
"""The Pod asks for what this machine cannot do; ends the Pod."""

_LASTING = frozenset({START_ERROR, UNSUPPORTED})

LOOPBACK = "127.0.0.1"


class LaunchError(Exception):
    """The container cannot be started; the message says why, in the words of Kubernetes where it has them."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def retry(self) -> bool:
        """Whether the same Pod may start later, when somebody has created what is missing."""
        return self.reason not in _LASTING


def keep_port(asked: int) -> int:
    return asked


@dataclass(frozen=True, slots=True)
class Site:
    """Where a Pod lives. Given by the agent; `directory` is the Pod's own (`<root>/<uid>`)."""

    directory: str
    level: str = PLAIN
    address: str = LOOPBACK
    host_address: str = LOOPBACK
    lease_port: Callable[[int], int] = keep_port
    """On the plain level: the port that the Pod's gang may use in place of the asked-for one."""
    api: tuple[str, int] | None = None
    """Where the Pod reaches the API server (KUBERNETES_SERVICE_HOST and _PORT); None when nobody serves."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further variables from the node (devices, threads); the Pod's own go over them."""


@dataclass(frozen=True, slots=True)
class ContainerSources:
    """ConfigMaps and Secrets of the Pod's namespace that its containers name; None where there is none."""

    config_maps: Mapping[str, Object | None] = field(default_factory=dict)
    secrets: Mapping[str, Object | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that `build_sandbox` and `build_container` need besides the Pod."""

    site: Site
    sources: ContainerSources = field(default_factory=ContainerSources)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    """By name; those that the node adds (`kube-api-access`) included."""
    images: Mapping[str, Environment] = field(default_factory=dict)
    """By container."""
    allocatable: Fields = field(default_factory=dict)
    """What the node has, as quantities: stands in for limits that a container does not set."""
    notes: tuple[str, ...] = ()
    """What was approximated for the Pod as a whole."""
    budget: TenantBudget | None = None
    """What all Pods of the namespace may take together; None where it is the owner's."""


def get_container(pod: Pod, name: str) -> Fields:
    return next(entry for entry in pod.all_containers if entry["name"] == name)
