"""A Pod of a job: its phase, its place in the job, and the state of its containers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import COMPLETION_INDEX, MIRROR
from trainmaster.api.meta import Fields
from trainmaster.api.pods.phases import OVER
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import JobSetMember


class Pod(JobSetMember):
    __slots__ = ()

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "Pending")

    @property
    def is_over(self) -> bool:
        """Whether its containers have ended for good, so that it holds no resources."""
        return self.status.get("phase") in OVER

    @property
    def is_running(self) -> bool:
        return bool(self.status.get("phase") == "Running")

    @property
    def is_active(self) -> bool:
        """Whether it has neither ended nor is being deleted."""
        return not self.is_over and not self.is_deleting

    @property
    def is_ready(self) -> bool:
        return self.is_true("Ready")

    @property
    def is_mirror(self) -> bool:
        """Whether it mirrors a part of the control plane, and belongs to no job."""
        return MIRROR in self.annotations

    @property
    def reason(self) -> str:
        """Why it is in its phase, if its containers are not the reason: `Evicted`."""
        return str(self.status.get("reason") or "")

    @property
    def unscheduled(self) -> Fields:
        """The condition that says why it is not scheduled; empty if it is, or scheduling was not tried."""
        condition = self.find_condition("PodScheduled")
        return condition if condition is not None and condition.get("status") == "False" else NOTHING

    @property
    def node(self) -> str:
        """The Node that it is bound to; "" if it is not."""
        return str(self.spec.get("nodeName") or "")

    @property
    def started_at(self) -> str:
        return str(self.status.get("startTime") or "")

    @property
    def service_account(self) -> str:
        return str(self.spec.get("serviceAccountName") or "default")

    @property
    def uses_host_network(self) -> bool:
        return bool(self.spec.get("hostNetwork"))

    @property
    def subdomain(self) -> str:
        """The headless Service under which it has a name; "" for none."""
        return str(self.spec.get("subdomain") or "")

    @property
    def security_context(self) -> Fields:
        """Shared by its containers, which can override it."""
        context: Fields = self.spec.get("securityContext") or NOTHING
        return context

    # Which member of its Job

    @property
    def index(self) -> int | None:
        """Its completion index; None if it has none."""
        text = self.labels.get(COMPLETION_INDEX) or self.annotations.get(COMPLETION_INDEX)
        return None if text is None else find_count(str(text))

    # Its containers

    @property
    def containers(self) -> Sequence[Fields]:
        return self.spec.get("containers") or ()

    @property
    def init_containers(self) -> Sequence[Fields]:
        return self.spec.get("initContainers") or ()

    @property
    def all_containers(self) -> list[Fields]:
        """In start order."""
        return [*self.init_containers, *self.containers]

    @property
    def container_statuses(self) -> Sequence[Fields]:
        return self.status.get("containerStatuses") or ()

    @property
    def init_container_statuses(self) -> Sequence[Fields]:
        return self.status.get("initContainerStatuses") or ()

    @property
    def all_container_statuses(self) -> list[Fields]:
        return [*self.init_container_statuses, *self.container_statuses]

    @property
    def notable_container_statuses(self) -> list[Fields]:
        """Those that tell how the Pod is doing: without init containers that have succeeded."""
        init = (one for one in self.init_container_statuses if read_terminated(one).get("exitCode") != 0)
        return [*init, *self.container_statuses]

    def list_states(self) -> Iterator[tuple[str, Fields]]:
        """(name, status) of all containers in start order; a missing status is empty."""
        for containers, statuses in (
            (self.init_containers, self.init_container_statuses),
            (self.containers, self.container_statuses),
        ):
            known = {status["name"]: status for status in statuses}
            for container in containers:
                yield container["name"], known.get(container["name"], NOTHING)

    @property
    def volumes(self) -> Sequence[Fields]:
        return self.spec.get("volumes") or ()


def read_waiting(container: Fields) -> Fields:
    """`state.waiting` of a container's status; empty if it is not waiting."""
    return _read_state(container, "state", "waiting")


def read_terminated(container: Fields) -> Fields:
    """`state.terminated` of a container's status; empty if it has not ended."""
    return _read_state(container, "state", "terminated")


def read_running(container: Fields) -> Fields:
    """`state.running` of a container's status; empty if it is not running."""
    return _read_state(container, "state", "running")


def read_last_terminated(container: Fields) -> Fields:
    """`lastState.terminated` of a container's status: how its previous run ended; empty if there was none."""
    return _read_state(container, "lastState", "terminated")


def is_running(container: Fields) -> bool:
    """Of a container's status."""
    return "running" in (container.get("state") or NOTHING)


def has_started(container: Fields) -> bool:
    """Whether there is a log of the current or the previous run."""
    state: Fields = container.get("state") or NOTHING
    return "running" in state or "terminated" in state or bool(read_last_terminated(container))


def is_between_runs(container: Fields) -> bool:
    """Whether it waits after a crash. Its restart count is then that of the run that has ended."""
    return "waiting" in (container.get("state") or NOTHING) and bool(read_last_terminated(container))


def count_restarts(container: Fields) -> int:
    """Restarts of a container within its Pod: the number of its current run."""
    return int(container.get("restartCount") or 0)


def _read_state(container: Fields, which: str, name: str) -> Fields:
    state: Fields = container.get(which) or NOTHING
    found: Fields = state.get(name) or NOTHING
    return found
