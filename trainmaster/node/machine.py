"""The Pod machine: from what is known of a Pod to what should happen next. Pure: no clock, no processes, no API.

The agent keeps one `PodState` per Pod, feeds it observations (`mark_started`, `mark_ended`), and after each change asks
`decide` for instructions. Asking twice without news gives no instruction twice: a start or a signal is noted in the
state when it is handed out. Terminal phases are never left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from trainmaster.api.meta import Object
from trainmaster.kit.backoff import Policy
from trainmaster.kit.clock import parse_time

RESTART = Policy(first=1.0, cap=60.0)
"""Between restarts of a container in place, after a first one without delay. Upstream: 10 s to 300 s."""


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int
    started_at: datetime | None
    finished_at: datetime
    reason: str
    message: str = ""
    signal: int = 0


class Stage(Enum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ContainerState:
    name: str
    attempt: int = 0
    """Number of restarts: the attempt that runs, ran last, or waits for its first start."""
    stage: Stage = Stage.WAITING
    started_at: datetime | None = None
    ended: Ended | None = None
    last: Ended | None = None
    """How the attempt before this one ended."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the Pod is not run at all."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodState:
    containers: tuple[ContainerState, ...]
    started_at: datetime
    refused: Refused | None = None
    asked_to_stop: bool = False
    killed: bool = False
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Signal:
    """To the whole process group of a container: first the polite one, after the grace period the other."""

    container: str
    force: bool


@dataclass(frozen=True, slots=True)
class Confirm:
    """Nothing of the Pod runs any more: the object may go."""


Instruction: TypeAlias = Start | Signal | Confirm


@dataclass(frozen=True, slots=True)
class Step:
    state: PodState
    instructions: tuple[Instruction, ...] = ()
    wake_after: float | None = None


def make_state(pod: Object, now: datetime, refused: Refused | None = None) -> PodState:
    names = [container["name"] for container in pod["spec"]["containers"]]
    return PodState(tuple(ContainerState(name) for name in names), now, refused)


def get_container(state: PodState, name: str) -> ContainerState:
    return next(container for container in state.containers if container.name == name)


def replace_container(state: PodState, new: ContainerState) -> PodState:
    return replace(state, containers=tuple(new if old.name == new.name else old for old in state.containers))


def mark_started(state: PodState, name: str, attempt: int, when: datetime) -> PodState:
    old = get_container(state, name)
    if old.attempt != attempt or old.stage is Stage.ENDED:
        return state
    return replace_container(state, replace(old, stage=Stage.RUNNING, started_at=when, ended=None))


def mark_ended(state: PodState, name: str, attempt: int, ended: Ended) -> PodState:
    old = get_container(state, name)
    if old.attempt != attempt or old.stage is Stage.ENDED:
        return state
    return replace_container(state, replace(old, stage=Stage.ENDED, ended=ended))


def will_restart(pod: Object, container: ContainerState) -> bool:
    if pod["metadata"].get("deletionTimestamp") or container.ended is None:
        return False
    policy = pod["spec"].get("restartPolicy", "Always")
    return bool(policy == "Always" or (policy == "OnFailure" and container.ended.exit_code != 0))


def get_restart_delay(container: ContainerState) -> float:
    """The whole pause before the next attempt of a container that has ended."""
    return RESTART.delay(container.attempt)


def decide_phase(pod: Object, state: PodState) -> str:
    if state.refused is not None:
        return "Failed"
    if any(container.stage in (Stage.WAITING, Stage.STARTING) for container in state.containers):
        fresh = all(container.last is None for container in state.containers)
        return "Pending" if fresh and not _is_stopped(pod, state) else _end_phase(state, "Running", pod)
    return _end_phase(state, "Running", pod)


def _is_stopped(pod: Object, state: PodState) -> bool:
    going = bool(pod["metadata"].get("deletionTimestamp"))
    return going and not any(container.stage in (Stage.STARTING, Stage.RUNNING) for container in state.containers)


def _end_phase(state: PodState, otherwise: str, pod: Object) -> str:
    for container in state.containers:
        if container.stage is Stage.RUNNING or container.stage is Stage.STARTING:
            return otherwise
        if container.stage is Stage.ENDED and will_restart(pod, container):
            return otherwise
        if container.stage is Stage.WAITING and not _is_stopped(pod, state):
            return otherwise
    codes = [container.ended.exit_code if container.ended else -1 for container in state.containers]
    return "Succeeded" if all(code == 0 for code in codes) else "Failed"


def decide(pod: Object, state: PodState, now: datetime) -> Step:
    if pod["metadata"].get("deletionTimestamp"):
        return _decide_deletion(pod, state, now)
    if decide_phase(pod, state) in ("Succeeded", "Failed"):
        return Step(state)
    instructions: list[Instruction] = []
    wakes: list[float] = []
    for container in state.containers:
        if container.stage is Stage.ENDED and container.ended is not None and will_restart(pod, container):
            waited = (now - container.ended.finished_at).total_seconds()
            pause = get_restart_delay(container) - waited
            if pause > 0:
                wakes.append(pause)
                continue
            container = ContainerState(container.name, container.attempt + 1, last=container.ended)
        if container.stage is Stage.WAITING:
            state = replace_container(state, replace(container, stage=Stage.STARTING))
            instructions.append(Start(container.name, container.attempt))
    return Step(state, tuple(instructions), min(wakes, default=None))


def _decide_deletion(pod: Object, state: PodState, now: datetime) -> Step:
    alive = [item for item in state.containers if item.stage in (Stage.STARTING, Stage.RUNNING)]
    if not alive:
        if state.confirmed:
            return Step(state)
        return Step(replace(state, confirmed=True), (Confirm(),))
    left = _get_grace_left(pod, now)
    if left <= 0 and not state.killed:
        kills = tuple(Signal(item.name, force=True) for item in alive)
        return Step(replace(state, asked_to_stop=True, killed=True), kills)
    if not state.asked_to_stop:
        asks = tuple(Signal(item.name, force=False) for item in alive)
        return Step(replace(state, asked_to_stop=True), asks, max(left, 0.0))
    return Step(state, (), None if state.killed else left)


def _get_grace_left(pod: Object, now: datetime) -> float:
    """The API server has added the grace period to this time, so it is the deadline.

    Stored times are cut to whole seconds: one more makes sure that nobody is killed before the time he was promised.
    """
    rounding = 1.0 if pod["metadata"].get("deletionGracePeriodSeconds") else 0.0
    return (parse_time(pod["metadata"]["deletionTimestamp"]) - now).total_seconds() + rounding
