"""The types of this package: launch errors, where a Pod runs, and what was prepared for it.

`Site` is what the node decides about a Pod beforehand; `Prepared` is the result of `Launcher.prepare`. Both are values:
after a restart of the control plane they are built again and are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainmaster.api.meta import Fields, Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.caches.mirror import CacheView
from trainmaster.node.images.contract import Environment
from trainmaster.node.launch.budgets import TenantBudget
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import PLAIN

CONFIG_ERROR = "CreateContainerConfigError"
"""The container waits: something that its environment refers to does not exist yet."""
FAILED_MOUNT = "FailedMount"
"""The Pod waits as ContainerCreating, with this event: a volume cannot be created yet."""
IMAGE_ERROR = "ErrImagePull"
"""The container waits: no rule maps its image to a Python environment, or the environment cannot be created."""
START_ERROR = "StartError"
"""The program cannot be executed; ends the attempt with exit code 128."""
UNSUPPORTED = "Unsupported"
"""The Pod requests something that this machine does not support; ends the Pod."""

INSTALL_ERROR = "InstallationFailed"
"""The packages of a container cannot be installed, and never could be; ends the Pod."""
POD_ENDS = frozenset({UNSUPPORTED, INSTALL_ERROR})
"""The reasons that end the Pod."""

_LASTING = POD_ENDS | {START_ERROR}

LOOPBACK = "127.0.0.1"

LeasePort = Callable[[int, str], int]
"""(port, name of the Pod that listens there, or "" for one of the gang)."""


class LaunchError(Exception):
    """The container cannot be started; the message is that of Kubernetes where there is one."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def retry(self) -> bool:
        """Whether the same Pod may start later, when missing objects have been created."""
        return self.reason not in _LASTING


def keep_port(asked: int, host: str = "") -> int:
    return asked


@dataclass(frozen=True, slots=True)
class Site:
    """Where a Pod runs. Provided by the agent; `directory` is the Pod's own (`<root>/<uid>`)."""

    directory: str
    level: str = PLAIN
    address: str = LOOPBACK
    host_address: str = LOOPBACK
    lease_port: LeasePort = keep_port
    """At the plain level: the port that the Pod's gang uses instead of the requested one."""
    api: tuple[str, int] | None = None
    """The API server's address for the Pod (KUBERNETES_SERVICE_HOST and _PORT); None if there is no server."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Additional variables from the node (devices, threads); the Pod's own override them."""


@dataclass(frozen=True, slots=True)
class ContainerSources:
    """ConfigMaps and Secrets that the containers refer to; None for those that do not exist."""

    config_maps: Mapping[str, Object | None] = field(default_factory=dict)
    secrets: Mapping[str, Object | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that `build_sandbox` and `build_container` need besides the Pod."""

    site: Site
    sources: ContainerSources = field(default_factory=ContainerSources)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    """By name, including those that the node adds (`kube-api-access`)."""
    images: Mapping[str, Environment] = field(default_factory=dict)
    """By container."""
    allocatable: Fields = field(default_factory=dict)
    """The node's capacity, used for limits that a container does not set."""
    notes: tuple[str, ...] = ()
    """What was approximated for the Pod as a whole."""
    cache: CacheView | None = None
    """The cache of the owner's jobs; None for others."""
    gang_socket: str = ""
    """Where the shim of an MPIJob's worker starts programs for the launcher; "" for other Pods."""
    shared_memory: str = ""
    """At the plain level: the worker's own directory for shared memory of Open MPI; "" for other Pods."""
    budget: TenantBudget | None = None
    """Limits of all Pods of the namespace together; None for the owner's."""


def get_container(pod: Pod, name: str) -> Fields:
    return next(entry for entry in pod.all_containers if entry["name"] == name)
