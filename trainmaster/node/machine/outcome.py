"""Determines phases, restarts and the outcome of a Pod from its containers. Pure and monotonic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.node.machine.model import ContainerPlan, ContainerRole, PodPlan
from trainmaster.node.machine.state import ContainerStage, ContainerState, Ending, HookStage, PodState

_RESTART = BackoffPolicy(first=1.0, cap=60.0)
_RETRY = BackoffPolicy(first=1.0, cap=30.0)
SUCCEEDED, FAILED, RUNNING, PENDING = "Succeeded", "Failed", "Running", "Pending"


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Settings of the administrator."""

    restart: BackoffPolicy = _RESTART
    """Between restarts of a container in place; the first restart is immediate. Upstream: 10 s to 300 s."""
    reset: float = 600.0
    """A container that ran this long starts a new back-off series, as in the kubelet."""
    retry: BackoffPolicy = _RETRY
    """Between attempts to create a container that could not be created (a missing ConfigMap, an unknown image)."""


RULES = RestartRules()


def will_restart(plan: PodPlan, state: PodState, container: ContainerState) -> bool:
    """Whether an ended container gets another attempt."""
    if container.ended is None or plan.deletion is not None or state.ending is not None:
        return False
    spec = plan.get(container.name)
    failed = container.ended.exit_code != 0
    if spec.role is ContainerRole.INIT:
        return failed and plan.policy != "Never"
    if spec.role is ContainerRole.SIDECAR:
        return find_outcome(plan, state) is None
    return plan.policy == "Always" or (plan.policy == "OnFailure" and failed)


def get_restart_delay(container: ContainerState, rules: RestartRules) -> float:
    """The total delay before the next attempt of an ended container."""
    if container.over - container.since >= rules.reset and container.started_at is not None:
        return 0.0
    return rules.restart.delay(container.series)


def find_outcome(plan: PodPlan, state: PodState) -> str | None:
    """Succeeded or Failed once no relevant container will run again; sidecars may still have to be stopped."""
    mains = []
    for spec in plan.containers:
        container = state.get(spec.name)
        if (
            spec.role is ContainerRole.INIT
            and not state.is_initialized
            and _has_failed_for_good(plan, state, container)
        ):
            return FAILED
        if spec.role is ContainerRole.MAIN:
            mains.append(container)
    if any(item.stage is not ContainerStage.ENDED or will_restart(plan, state, item) for item in mains):
        return None
    return _judge(mains)


def _has_failed_for_good(plan: PodPlan, state: PodState, container: ContainerState) -> bool:
    ended = container.ended
    return ended is not None and ended.exit_code != 0 and not will_restart(plan, state, container)


def _judge(mains: list[ContainerState]) -> str:
    codes = [container.ended.exit_code if container.ended else -1 for container in mains]
    return SUCCEEDED if all(code == 0 for code in codes) else FAILED


def decide_phase(plan: PodPlan, state: PodState) -> str:
    """Terminal only when nothing runs any more."""
    if state.is_alive:
        return RUNNING if has_begun(plan, state) else PENDING
    if state.ending is not None:
        return FAILED
    outcome = find_outcome(plan, state)
    if outcome is not None:
        return outcome
    if plan.deletion is not None:
        return _judge([state.get(spec.name) for spec in plan.mains])
    return RUNNING if has_begun(plan, state) else PENDING


def has_begun(plan: PodPlan, state: PodState) -> bool:
    """Every main container was started at least once, including the postStart hook."""
    return state.is_initialized and all(_has_begun(spec, state.get(spec.name)) for spec in plan.mains)


def _has_begun(spec: ContainerPlan, container: ContainerState) -> bool:
    if container.attempt > 0 or container.stage is not ContainerStage.RUNNING:
        return container.has_run
    return spec.post_start is None or container.post_start is HookStage.DONE or container.stop is not None


def end_pod(plan: PodPlan, state: PodState, ending: Ending) -> PodState:
    """Ends the Pod as Failed. The first cause is kept, and so is an outcome that is already final."""
    if state.ending is not None or find_outcome(plan, state) is not None:
        return state
    return replace(state, ending=ending)


def is_over(plan: PodPlan, state: PodState) -> bool:
    return decide_phase(plan, state) in (SUCCEEDED, FAILED)


def is_complete(spec: ContainerPlan, container: ContainerState) -> bool:
    """An init container that the next one need not wait for."""
    if spec.role is ContainerRole.SIDECAR:
        return container.stage is ContainerStage.RUNNING and container.is_started
    return container.stage is ContainerStage.ENDED and container.ended is not None and container.ended.exit_code == 0
