"""A Pod as the agent follows it: the newest object, its plan, and the state once it has been loaded.

Observations may arrive while the state is still being read from disk; `change` keeps them and applies them in order
once it is loaded.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.api.resources import PODS
from trainmaster.client.contract import Client
from trainmaster.client.follow import ActiveObjects, ListWatch
from trainmaster.client.view import RestingView
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.logs.end_signal import EndSignal
from trainmaster.node.machine.model import PodPlan, read_plan
from trainmaster.node.machine.state import ContainerStage, PodState
from trainmaster.node.network.addresses import get_gang

Change = Callable[[PodState], PodState]
_SLICE = 256


@dataclass(slots=True)
class TrackedPod:
    obj: Pod
    plan: PodPlan
    state: PodState | None = None
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the state is read, which happens once."""
    gone: bool = False
    """The object is deleted."""
    is_settled: bool = False
    """It has ended, its status is written, and its sandbox is closed."""
    starting: asyncio.Task[None] | None = None
    """The task that prepares containers and has not started any: it can be cancelled."""
    starts_since: float | None = None
    """Boot time since which containers are being started and the status update waits for them."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Hooks and probes."""
    said: set[str] = field(default_factory=set)
    """Approximations that were reported in an event."""
    ends: dict[tuple[str, int], EndSignal] = field(default_factory=dict)
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
            self.get_end_signal(container, attempt)

    def change(self, change: Change) -> None:
        if self.state is None:
            self._pending.append(change)
        else:
            self.state = change(self.state)

    def get_end_signal(self, container: str, attempt: int) -> EndSignal:
        """Set when that attempt is over. Before the state is loaded, only a finished Pod counts as over."""
        signal = self.ends.setdefault((container, attempt), EndSignal())
        if self.state is None:
            is_ended = self.obj.is_over
        else:
            found = self.state.get(container)
            is_ended = found.attempt > attempt or found.stage is ContainerStage.ENDED
        if is_ended:
            signal.set()
        return signal

    def set_ended(self, container: str, attempt: int) -> None:
        self.ends.setdefault((container, attempt), EndSignal()).set()

    def set_all_ended(self) -> None:
        for signal in self.ends.values():
            signal.set()


def track(obj: Pod) -> TrackedPod:
    return TrackedPod(obj, read_plan(obj))


class RestingPods:
    """Pods at rest: they finished and were settled in an earlier process. There may be very many. They are not followed
    one by one; their directories stay, for their logs, until they are deleted."""

    def __init__(self, view: RestingView | None, node: str) -> None:
        self._view = view
        self._node = node
        self._names: dict[str, tuple[str, str]] = {}
        """Uid to namespace and name."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._names

    def list(self) -> list[Pod]:
        """Without anything but their identity."""
        return [
            Pod({"metadata": {"uid": uid, "namespace": namespace, "name": name}})
            for uid, (namespace, name) in self._names.items()
        ]

    def drop(self, uid: str) -> bool:
        """Called when a Pod changes. Returns whether it was at rest."""
        return self._names.pop(uid, None) is not None

    async def load(self) -> set[str]:
        """Reads which Pods are at rest. Returns their uids."""
        self._names.clear()
        for uid, namespace, name in () if self._view is None else self._view.list_at_rest(PODS):
            self._names[uid] = (sys.intern(namespace), name)
            if len(self._names) % _SLICE == 0:
                await asyncio.sleep(0)
        return set(self._names)

    def choose_source(self, client: Client) -> ListWatch:
        """A client that lists the other Pods of the node."""
        if self._view is None:
            return client
        return ActiveObjects(client, self._view, lambda pod: bool(Pod(pod).spec.get("nodeName") == self._node))
