"""How one container is stopped: preStop hook, polite signal in its turn, and after the grace period the kill. Pure.

All hooks of a Pod begin at once; the signal waits for the container's turn (sidecars go after the main containers, in
reverse order). The hook and the wait are part of the grace period, but a program always has a moment between the two
signals, unless there is no grace at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainmaster.node.machine.model import ContainerPlan
from trainmaster.node.machine.state import ContainerStage, ContainerState, HookStage, Moment, Stop
from trainmaster.node.machine.steps import Hook, Instruction, Kill, Signal

LEAST = 2.0
"""Seconds between the two signals, however long the hook took. As upstream."""


@dataclass(frozen=True, slots=True)
class Pursuit:
    container: ContainerState
    instructions: tuple[Instruction, ...] = ()
    wake_at: float | None = None


def begin_stop(container: ContainerState, deadline: float) -> ContainerState:
    """Begins the stop, or shortens one that is under way (a probe's, or a longer grace period)."""
    if container.stop is None:
        return replace(container, stop=Stop(deadline))
    if deadline < container.stop.deadline:
        return replace(container, stop=replace(container.stop, deadline=deadline))
    return container


def pursue_stop(spec: ContainerPlan, container: ContainerState, now: Moment, *, is_turn: bool) -> Pursuit:
    """The next step of a stop that has begun; nothing when it was taken already."""
    stop = container.stop
    if stop is None or container.stage is not ContainerStage.RUNNING or stop.killed:
        return Pursuit(container)
    left = stop.deadline - now.boot
    if stop.asked is not None or (left <= 0 and stop.hook is HookStage.NONE):
        return _pursue_kill(container, stop, now)
    if stop.hook is HookStage.NONE and spec.pre_stop is not None:
        hook = Hook(container.name, container.attempt, "preStop", spec.pre_stop, left)
        return Pursuit(replace(container, stop=replace(stop, hook=HookStage.RUNNING)), (hook,), stop.deadline)
    if (stop.hook is HookStage.RUNNING or not is_turn) and left > 0:
        return Pursuit(container, (), stop.deadline)
    asked = replace(container, stop=replace(stop, asked=now.boot))
    wake = max(stop.deadline, now.boot + LEAST)
    return Pursuit(asked, (Signal(container.name, spec.stop_signal),), wake)


def _pursue_kill(container: ContainerState, stop: Stop, now: Moment) -> Pursuit:
    # A deadline that was cut to nothing after the signal (grace 0) counts at once; a hook's delay does not.
    at = stop.deadline
    if stop.asked is not None and stop.hook is not HookStage.NONE:
        at = max(at, stop.asked + LEAST)
    if at > now.boot:
        return Pursuit(container, (), at)
    return Pursuit(replace(container, stop=replace(stop, killed=True)), (Kill(container.name),))
