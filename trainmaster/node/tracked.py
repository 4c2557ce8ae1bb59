"""One Pod as the agent follows it: the newest object, what it asks for, and the machine's state once it was looked at.

Observations arrive at any time, also while the state is being read from disk; `change` keeps those and applies them
in their order as soon as there is a state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.jobs.models.pods import Pod
from trainmaster.node.machine.model import PodPlan, read_plan
from trainmaster.node.machine.state import ContainerStage, PodState
from trainmaster.node.network.addresses import get_gang

Change = Callable[[PodState], PodState]


@dataclass(slots=True)
class TrackedPod:
    obj: Pod
    plan: PodPlan
    state: PodState | None = None
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the state is read; it is read once."""
    gone: bool = False
    """The object is deleted."""
    is_settled: bool = False
    """It is over, its status is written, and its sandbox is closed."""
    starting: asyncio.Task[None] | None = None
    """The task that prepares containers and has not begun any: it may be cancelled."""
    starts_since: float | None = None
    """Boot time since which containers are being started and the status waits for that."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Hooks and probes."""
    said: set[str] = field(default_factory=set)
    """Approximations that an event has told of."""
    ends: dict[tuple[str, int], asyncio.Event] = field(default_factory=dict)
    _pending: list[Change] = field(default_factory=list)

    @property
    def uid(self) -> str:
        return self.plan.uid

    @property
    def gang(self) -> str:
        return get_gang(self.obj)

    def take(self, obj: Pod) -> None:
        self.obj = obj
        self.plan = read_plan(obj)

    def load(self, state: PodState) -> None:
        self.state = state
        for change in self._pending:
            self.change(change)
        self._pending.clear()
        for container, attempt in tuple(self.ends):
            self.get_end_event(container, attempt)

    def change(self, change: Change) -> None:
        if self.state is None:
            self._pending.append(change)
        else:
            self.state = change(self.state)

    def get_end_event(self, container: str, attempt: int) -> asyncio.Event:
        """Set when that attempt is over, or was over before anybody asked. What runs is not known until the state is
        read: before that only a Pod that is over has nothing to wait for."""
        event = self.ends.setdefault((container, attempt), asyncio.Event())
        if self.state is None:
            is_ended = self.obj.is_over
        else:
            found = self.state.get(container)
            is_ended = found.attempt > attempt or found.stage is ContainerStage.ENDED
        if is_ended:
            event.set()
        return event

    def set_ended(self, container: str, attempt: int) -> None:
        self.ends.setdefault((container, attempt), asyncio.Event()).set()

    def set_all_ended(self) -> None:
        for event in self.ends.values():
            event.set()


def track(obj: Pod) -> TrackedPod:
    return TrackedPod(obj, read_plan(obj))
