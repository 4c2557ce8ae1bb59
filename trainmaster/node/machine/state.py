"""The observed state of a Pod, and functions that add observations. Immutable; pure.

Expiry is decided by `Moment.boot`, which changes of the wall clock do not affect. A stored (wall) time is anchored to
it when this process first sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from trainmaster.node.machine.model import PodPlan, ProbeKind


@dataclass(frozen=True, slots=True)
class Moment:
    boot: float
    wall: datetime

    def anchor(self, stored: datetime) -> float:
        """The boot time of a stored wall time; never in the future."""
        return self.boot - max(0.0, (self.wall - stored).total_seconds())


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    exit_code: int
    started_at: datetime | None
    finished_at: datetime
    reason: str
    message: str = ""
    signal: int = 0


class ContainerStage(Enum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class HookStage(Enum):
    NONE = "none"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Blocked:
    """A container that could not be created yet: the waiting reason of the API, and when to retry."""

    reason: str
    message: str
    tries: int
    since: float


@dataclass(frozen=True, slots=True)
class ProbeState:
    due: float
    is_running: bool = False
    failures: int = 0
    """In a row."""
    successes: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """A container that is being stopped."""

    deadline: float
    hook: HookStage = HookStage.NONE
    asked: float | None = None
    """When the first signal was sent."""
    killed: bool = False


@dataclass(frozen=True, slots=True)
class ContainerState:
    name: str
    attempt: int = 0
    """The number of restarts: identifies the attempt that runs, ran last, or will start."""
    stage: ContainerStage = ContainerStage.WAITING
    started_at: datetime | None = None
    since: float = 0.0
    """Boot time of `started_at`."""
    ended: ContainerEnd | None = None
    over: float = 0.0
    """Boot time of the end."""
    last: ContainerEnd | None = None
    """How the previous attempt ended."""
    series: int = 0
    """Restarts since the container last ran for long."""
    is_backoff_announced: bool = False
    """Whether an event has announced that the next attempt waits."""
    blocked: Blocked | None = None
    post_start: HookStage = HookStage.NONE
    is_started: bool = False
    """Running, with the postStart hook finished and the startup probe (if any) passed."""
    is_ready: bool = False
    probes: Mapping[ProbeKind, ProbeState] = field(default_factory=dict)
    stop: Stop | None = None

    @property
    def is_alive(self) -> bool:
        return self.stage in (ContainerStage.STARTING, ContainerStage.RUNNING)

    @property
    def has_run(self) -> bool:
        return self.attempt > 0 or self.stage in (ContainerStage.RUNNING, ContainerStage.ENDED)


@dataclass(frozen=True, slots=True)
class Ending:
    """The Pod ends as Failed whatever its containers do: refused, past its deadline, evicted, disrupted."""

    reason: str
    message: str
    disruption: str = ""
    """Reason of the DisruptionTarget condition; empty for none."""
    grace: float | None = None
    """Grace period in seconds; None for the Pod's own."""


@dataclass(frozen=True, slots=True)
class PodState:
    containers: tuple[ContainerState, ...]
    started_at: datetime
    since: float
    """Boot time of `started_at`."""
    is_initialized: bool = False
    """Init containers have finished and sidecars started: the main containers may run, and init containers never
    again."""
    ending: Ending | None = None
    stop_seen: float | None = None
    """When the Pod began to end by itself, in boot time."""
    deletion_seen: float | None = None
    """When the deletion was requested, in boot time."""
    is_noticed: bool = False
    is_confirmed: bool = False

    def get(self, name: str) -> ContainerState:
        return next(container for container in self.containers if container.name == name)

    def put(self, new: ContainerState) -> PodState:
        return replace(self, containers=tuple(new if old.name == new.name else old for old in self.containers))

    @property
    def is_alive(self) -> bool:
        return any(container.is_alive for container in self.containers)


def make_state(plan: PodPlan, now: Moment, *, started_at: datetime | None = None) -> PodState:
    names = tuple(ContainerState(container.name) for container in plan.containers)
    begun = started_at or now.wall
    return PodState(names, begun, now.anchor(begun), is_initialized=not plan.has_inits)


def mark_started(state: PodState, name: str, attempt: int, when: datetime, now: Moment) -> PodState:
    old = state.get(name)
    if old.attempt != attempt or old.stage in (ContainerStage.ENDED, ContainerStage.RUNNING):
        return state
    return state.put(replace(old, stage=ContainerStage.RUNNING, started_at=when, since=now.anchor(when), blocked=None))


def mark_ended(state: PodState, name: str, attempt: int, ended: ContainerEnd, now: Moment) -> PodState:
    old = state.get(name)
    if old.attempt != attempt or old.stage is ContainerStage.ENDED:
        return state
    gone = replace(old, stage=ContainerStage.ENDED, ended=ended, over=now.anchor(ended.finished_at), blocked=None)
    return state.put(replace(gone, is_started=False, is_ready=False, probes={}, stop=None))


def mark_blocked(state: PodState, name: str, attempt: int, why: tuple[str, str], now: Moment) -> PodState:
    """The attempt could not be created, for a (reason, message); it has not started."""
    old = state.get(name)
    if old.attempt != attempt or old.stage is not ContainerStage.STARTING:
        return state
    tries = old.blocked.tries + 1 if old.blocked else 1
    return state.put(replace(old, stage=ContainerStage.WAITING, blocked=Blocked(*why, tries, now.boot)))


def mark_preparing(state: PodState, message: str) -> PodState:
    """What the containers that are being started wait for; shown until they run or fail."""
    for old in state.containers:
        if old.stage is ContainerStage.STARTING:
            tries, since = (old.blocked.tries, old.blocked.since) if old.blocked else (0, 0.0)
            state = state.put(replace(old, blocked=Blocked("ContainerCreating", message, tries, since)))
    return state


def mark_not_begun(state: PodState, name: str, attempt: int) -> PodState:
    """The start was cancelled before anything happened."""
    old = state.get(name)
    if old.attempt != attempt or old.stage is not ContainerStage.STARTING:
        return state
    return state.put(replace(old, stage=ContainerStage.WAITING))


def mark_post_start(state: PodState, name: str, attempt: int) -> PodState:
    """The hook is over. If it failed the agent also calls `mark_must_end`."""
    old = state.get(name)
    if old.attempt != attempt or old.stage is not ContainerStage.RUNNING:
        return state
    return state.put(replace(old, post_start=HookStage.DONE))


def mark_must_end(state: PodState, name: str, attempt: int, grace: float, now: Moment) -> PodState:
    """This attempt must end because of a hook or probe; the restart policy decides what follows."""
    old = state.get(name)
    if old.attempt != attempt or old.stage is not ContainerStage.RUNNING or old.stop is not None:
        return state
    return state.put(replace(old, stop=Stop(now.boot + grace), is_ready=False))


def mark_pre_stop(state: PodState, name: str, attempt: int) -> PodState:
    old = state.get(name)
    if old.attempt != attempt or old.stop is None:
        return state
    return state.put(replace(old, stop=replace(old.stop, hook=HookStage.DONE)))
