"""Builds a Pod's status from the state machine's state. Pure; times of conditions are kept while they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.conditions import Condition, find_condition
from trainmaster.api.labels import CHECKPOINT
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import format_time
from trainmaster.node.machine.model import ContainerPlan, ContainerRole, PodPlan
from trainmaster.node.machine.outcome import (
    RULES,
    RestartRules,
    decide_phase,
    get_restart_delay,
    has_begun,
    is_complete,
    will_restart,
)
from trainmaster.node.machine.state import ContainerEnd, ContainerStage, ContainerState, HookStage, PodState

ADDRESS = "127.0.0.1"
"""At the plain level all Pods share the machine's loopback address."""


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What the status contains besides the machine's state."""

    address: str = ADDRESS
    """The Pod's address; empty while it has none."""
    host: str = ADDRESS
    rules: RestartRules = RULES
    checkpoint: str = ""
    """The newest complete checkpoint of its job when it failed, for `CheckpointSaved`; "" if there is none."""


FACTS = StatusFacts()


def build_status(pod: Pod, plan: PodPlan, state: PodState, now: datetime, facts: StatusFacts = FACTS) -> Object:
    """All fields that the node owns. Fields of others (qosClass, other conditions) are kept or omitted."""
    phase = decide_phase(plan, state)
    status: Object = {
        "phase": phase,
        "conditions": _build_conditions(pod, plan, state, phase, now, facts.checkpoint),
        "hostIP": facts.host,
        "hostIPs": [{"ip": facts.host}],
        "startTime": format_time(state.started_at),
    }
    if state.ending is not None and phase == "Failed":
        status["reason"] = state.ending.reason
        status["message"] = state.ending.message
        if not any(container.has_run for container in state.containers):
            return status
    if facts.address:
        status["podIP"] = facts.address
        status["podIPs"] = [{"ip": facts.address}]
    built = [(spec.role, _build_container(plan, state, spec, facts.rules)) for spec in plan.containers]
    status["containerStatuses"] = [entry for role, entry in built if role is ContainerRole.MAIN]
    if plan.has_inits:
        status["initContainerStatuses"] = [entry for role, entry in built if role is not ContainerRole.MAIN]
    return status


def is_ready(spec: ContainerPlan, container: ContainerState) -> bool:
    """As in containerStatuses[].ready: an init container is ready when it has succeeded."""
    if spec.role is ContainerRole.INIT:
        return is_complete(spec, container)
    return container.is_ready


def _build_container(plan: PodPlan, state: PodState, spec: ContainerPlan, rules: RestartRules) -> Object:
    container = state.get(spec.name)
    status: Object = {
        "name": container.name,
        "state": _build_state(plan, state, spec, container, rules),
        "lastState": {"terminated": _build_terminated(container.last)} if container.last else {},
        "ready": is_ready(spec, container),
        "restartCount": container.attempt,
        "image": spec.image,
        "imageID": "",
        "started": container.is_started,
    }
    if container.stage is ContainerStage.RUNNING or container.stage is ContainerStage.ENDED:
        status["containerID"] = f"process://{plan.uid}/{container.name}/{container.attempt}"
    if container.ended is not None and will_restart(plan, state, container):
        status["lastState"] = {"terminated": _build_terminated(container.ended)}
    return status


def _build_state(
    plan: PodPlan, state: PodState, spec: ContainerPlan, container: ContainerState, rules: RestartRules
) -> Object:
    is_begun = spec.post_start is None or container.post_start is HookStage.DONE or container.stop is not None
    if container.stage is ContainerStage.RUNNING and container.started_at is not None and is_begun:
        return {"running": {"startedAt": format_time(container.started_at)}}
    if container.ended is not None:
        if will_restart(plan, state, container):
            return {"waiting": _build_back_off(plan, container, rules)}
        return {"terminated": _build_terminated(container.ended)}
    if container.blocked is not None:
        message = {"message": container.blocked.message} if container.blocked.message else {}
        return {"waiting": {"reason": container.blocked.reason, **message}}
    waits_for_init = plan.has_inits and (spec.role is not ContainerRole.MAIN or not state.is_initialized)
    return {"waiting": {"reason": "PodInitializing" if waits_for_init else "ContainerCreating"}}


def _build_back_off(plan: PodPlan, container: ContainerState, rules: RestartRules) -> Object:
    pause = int(get_restart_delay(container, rules))
    text = f"back-off {pause}s restarting failed container={container.name} pod={plan.name}_{plan.namespace}"
    return {"reason": "CrashLoopBackOff", "message": f"{text}({plan.uid})"}


def _build_terminated(ended: ContainerEnd) -> Object:
    terminated: Object = {"exitCode": ended.exit_code, "reason": ended.reason}
    if ended.signal:
        terminated["signal"] = ended.signal
    if ended.message:
        terminated["message"] = ended.message
    if ended.started_at is not None:
        terminated["startedAt"] = format_time(ended.started_at)
    terminated["finishedAt"] = format_time(ended.finished_at)
    return terminated


def _build_conditions(
    pod: Pod, plan: PodPlan, state: PodState, phase: str, now: datetime, checkpoint: str
) -> list[Fields]:
    old = pod.conditions
    ready, gated = _judge_readiness(pod, plan, state, phase)
    incomplete = [
        spec.name
        for spec in plan.containers
        if spec.role is not ContainerRole.MAIN and not is_complete(spec, state.get(spec.name))
    ]
    initialized = ("", "")
    if phase == "Succeeded":
        initialized = ("PodCompleted", "")
    elif not state.is_initialized:
        initialized = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    has_sandbox = any(container.has_run or container.is_alive for container in state.containers)
    wanted = [
        _condition(old, "PodReadyToStartContainers", has_sandbox and phase in ("Pending", "Running"), ("", ""), now),
        _condition(old, "Initialized", state.is_initialized, initialized, now),
        _condition(old, "Ready", not gated[0], gated, now),
        _condition(old, "ContainersReady", not ready[0], ready, now),
        _condition(old, "PodScheduled", True, ("", ""), now),
    ]
    if state.ending is not None and state.ending.disruption:
        text = (state.ending.disruption, state.ending.message)
        wanted.append(_condition(old, "DisruptionTarget", True, text, now))
    if checkpoint and phase == "Failed":
        wanted.append(_condition(old, CHECKPOINT, True, ("Complete", checkpoint), now))
    names = {condition["type"] for condition in wanted}
    return [*wanted, *(condition for condition in old if condition.get("type") not in names)]


def _judge_readiness(pod: Pod, plan: PodPlan, state: PodState, phase: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Why the containers and why the Pod are not ready: (reason, message); ("", "") if they are."""
    if phase in ("Succeeded", "Failed"):
        why = ("PodCompleted" if phase == "Succeeded" else "PodFailed", "")
        return why, why
    counted = [spec for spec in plan.containers if spec.role is not ContainerRole.INIT]
    unready = [spec.name for spec in counted if not is_ready(spec, state.get(spec.name))]
    if unready or not has_begun(plan, state):
        why = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
        return why, why
    closed = [
        f'corresponding condition of pod readiness gate "{gate["conditionType"]}" '
        + ("does not exist." if pod.find_condition(gate["conditionType"]) is None else "is not True.")
        for gate in list_items(pod.spec, "readinessGates")
        if not pod.is_true(gate["conditionType"])
    ]
    return ("", ""), ("ReadinessGatesNotReady", ", ".join(closed)) if closed else ("", "")


def _condition(old: Sequence[Fields], kind: str, status: bool, why: tuple[str, str], now: datetime) -> Condition:
    text = "True" if status else "False"
    before = find_condition(old, kind)
    since = format_time(now)
    if before is not None and before.get("status") == text and before.get("lastTransitionTime"):
        since = before["lastTransitionTime"]
    condition: Condition = {"type": kind, "status": text, "lastTransitionTime": since}
    reason, message = why
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition
