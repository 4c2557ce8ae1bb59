"""Stops a container: preStop hook, signal when it is its turn, and SIGKILL after the grace period. Pure.

All hooks of a Pod start at the same time; the signal waits for the container's turn (sidecars stop after the main
containers, in reverse order). Hook and waiting are part of the grace period, but a program always has a moment between
the two signals, unless the grace period is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainmaster.node.machine.model import ContainerPlan
from trainmaster.node.machine.state import ContainerStage, ContainerState, HookStage, Moment, Stop
from trainmaster.node.machine.steps import Hook, Instruction, Kill, Signal

LEAST = 2.0
"""Minimum seconds between the two signals, however long the hook took. As upstream."""


@dataclass(frozen=True, slots=True)
class StopStep:
    container: ContainerState
    instructions: tuple[Instruction, ...] = ()
    wake_at: float | None = None


def begin_stop(container: ContainerState, deadline: float) -> ContainerState:
    """Begins to stop the container, or shortens a stop in progress (a probe's, or a longer grace period)."""
    if container.stop is None:
        return replace(container, stop=Stop(deadline))
    if deadline < container.stop.deadline:
        return replace(container, stop=replace(container.stop, deadline=deadline))
    return container


def advance_stop(spec: ContainerPlan, container: ContainerState, now: Moment, *, is_turn: bool) -> StopStep:
    """The next step of a stop; nothing if it was taken already."""
    stop = container.stop
    if stop is None or container.stage is not ContainerStage.RUNNING or stop.killed:
        return StopStep(container)
    left = stop.deadline - now.boot
    if stop.asked is not None or (left <= 0 and stop.hook is HookStage.NONE):
        return _advance_kill(container, stop, now)
    if stop.hook is HookStage.NONE and spec.pre_stop is not None:
        hook = Hook(container.name, container.attempt, "preStop", spec.pre_stop, left)
        return StopStep(replace(container, stop=replace(stop, hook=HookStage.RUNNING)), (hook,), stop.deadline)
    if (stop.hook is HookStage.RUNNING or not is_turn) and left > 0:
        return StopStep(container, (), stop.deadline)
    asked = replace(container, stop=replace(stop, asked=now.boot))
    wake = max(stop.deadline, now.boot + LEAST)
    return StopStep(asked, (Signal(container.name, spec.stop_signal),), wake)


def _advance_kill(container: ContainerState, stop: Stop, now: Moment) -> StopStep:
    # A deadline that was reduced to 0 after the signal applies immediately; the delay of a hook does not.
    at = stop.deadline
    if stop.asked is not None and stop.hook is not HookStage.NONE:
        at = max(at, stop.asked + LEAST)
    if at > now.boot:
        return StopStep(container, (), at)
    return StopStep(replace(container, stop=replace(stop, killed=True)), (Kill(container.name),))
