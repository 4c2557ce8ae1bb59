"""Determines when a probe is due, and the result of its answers. Pure.

The startup probe runs first and alone; readiness and liveness probes start when it has passed. A probe is repeated one
period after its last start, and never runs twice at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainmaster.node.machine.model import ContainerPlan, PodPlan, ProbeKind, ProbeSpec
from trainmaster.node.machine.state import ContainerStage, ContainerState, Moment, PodState, ProbeState, Stop
from trainmaster.node.machine.steps import EventNote


def list_active(spec: ContainerPlan, container: ContainerState) -> Iterator[tuple[ProbeKind, ProbeSpec]]:
    """The probes that run in the container's current state."""
    if not spec.probes or container.stage is not ContainerStage.RUNNING or container.stop is not None:
        return
    for kind, probe in spec.probes.items():
        if (kind is ProbeKind.STARTUP) != container.is_started:
            yield kind, probe


def get_state(container: ContainerState, kind: ProbeKind, probe: ProbeSpec) -> ProbeState:
    """The first probe waits for the initial delay, counted from the container's start."""
    return container.probes.get(kind) or ProbeState(due=container.since + probe.initial_delay)


def mark_asked(
    container: ContainerState, kind: ProbeKind, state: ProbeState, period: float, now: Moment
) -> ContainerState:
    asked = replace(state, is_running=True, due=now.boot + period)
    return replace(container, probes={**container.probes, kind: asked})


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    container: str
    attempt: int
    kind: ProbeKind
    ok: bool
    text: str = ""
    """The output of the program or the error of the connection."""


def mark_answer(
    plan: PodPlan, state: PodState, answer: ProbeAnswer, now: Moment
) -> tuple[PodState, tuple[EventNote, ...]]:
    """Counts an answer. A container whose startup or liveness probe has failed must end."""
    container = state.get(answer.container)
    spec = (plan.get(answer.container).probes or {}).get(answer.kind)
    known = container.probes.get(answer.kind)
    if (
        container.attempt != answer.attempt
        or container.stage is not ContainerStage.RUNNING
        or spec is None
        or known is None
    ):
        return state, ()
    counted = replace(
        known,
        is_running=False,
        failures=0 if answer.ok else known.failures + 1,
        successes=known.successes + 1 if answer.ok else 0,
    )
    container = replace(container, probes={**container.probes, answer.kind: counted})
    if container.stop is not None:
        return state.put(container), ()
    says = []
    # Not an event per failure: only for the first in a row, and the one that has consequences.
    if counted.failures in (1, spec.failure):
        says.append(EventNote("Unhealthy", f"{answer.kind.value} probe failed: {answer.text}", warning=True))
    after = _conclude(plan, container, answer.kind, spec, counted, now)
    if after.stop is not None:
        text = f"Container {answer.container} failed {answer.kind.value.lower()} probe, will be restarted"
        says.append(EventNote("Killing", text))
    return state.put(after), tuple(says)


def _conclude(
    plan: PodPlan, container: ContainerState, kind: ProbeKind, spec: ProbeSpec, counted: ProbeState, now: Moment
) -> ContainerState:
    passed, failed = counted.successes >= spec.success, counted.failures >= spec.failure
    if kind is ProbeKind.READINESS:
        return replace(container, is_ready=True if passed else False if failed else container.is_ready)
    if kind is ProbeKind.STARTUP and passed:
        return replace(container, is_started=True)
    if failed:
        grace = plan.grace if spec.grace is None else spec.grace
        return replace(container, stop=Stop(now.boot + grace), is_ready=False)
    return container
