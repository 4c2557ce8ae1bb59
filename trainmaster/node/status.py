"""A Pod's status as the API shows it, from the machine's state. Pure; times of conditions stay while they hold."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from trainmaster.api.conditions import Condition, find_condition, list_conditions
from trainmaster.api.meta import Object
from trainmaster.kit.clock import format_time
from trainmaster.node.machine import (
    ContainerState,
    Ended,
    PodState,
    Stage,
    decide_phase,
    get_restart_delay,
    will_restart,
)

ADDRESS = "127.0.0.1"
"""On the plain level all Pods share the machine's loopback address."""


def build_status(pod: Object, state: PodState, now: datetime) -> Object:
    """All fields that the node owns. Fields of others (qosClass) are not in it."""
    phase = decide_phase(pod, state)
    status: Object = {
        "phase": phase,
        "conditions": _build_conditions(pod, state, phase, now),
        "hostIP": ADDRESS,
        "startTime": format_time(state.started_at),
    }
    if state.refused is not None:
        status["reason"] = state.refused.reason
        status["message"] = state.refused.message
        return status
    status["podIP"] = ADDRESS
    status["podIPs"] = [{"ip": ADDRESS}]
    images = {entry["name"]: entry.get("image", "") for entry in pod["spec"]["containers"]}
    status["containerStatuses"] = [_build_container(pod, item, images[item.name]) for item in state.containers]
    return status


def _build_container(pod: Object, container: ContainerState, image: str) -> Object:
    running = container.stage is Stage.RUNNING
    uid = pod["metadata"]["uid"]
    status: Object = {
        "name": container.name,
        "state": _build_state(pod, container),
        "lastState": {"terminated": _build_terminated(container.last)} if container.last else {},
        "ready": running,
        "restartCount": container.attempt,
        "image": image,
        "imageID": "",
        "started": running,
    }
    if running or container.stage is Stage.ENDED:
        status["containerID"] = f"process://{uid}/{container.name}/{container.attempt}"
    if container.ended is not None and will_restart(pod, container):
        status["lastState"] = {"terminated": _build_terminated(container.ended)}
    return status


def _build_state(pod: Object, container: ContainerState) -> Object:
    if container.stage is Stage.RUNNING and container.started_at is not None:
        return {"running": {"startedAt": format_time(container.started_at)}}
    if container.ended is not None:
        if will_restart(pod, container):
            return {"waiting": _build_back_off(pod, container)}
        return {"terminated": _build_terminated(container.ended)}
    return {"waiting": {"reason": "ContainerCreating"}}


def _build_back_off(pod: Object, container: ContainerState) -> Object:
    meta = pod["metadata"]
    pause = int(get_restart_delay(container))
    text = f"back-off {pause}s restarting failed container={container.name} pod={meta['name']}_{meta['namespace']}"
    return {"reason": "CrashLoopBackOff", "message": f"{text}({meta['uid']})"}


def _build_terminated(ended: Ended) -> dict[str, Any]:
    terminated: dict[str, Any] = {"exitCode": ended.exit_code, "reason": ended.reason}
    if ended.signal:
        terminated["signal"] = ended.signal
    if ended.message:
        terminated["message"] = ended.message
    if ended.started_at is not None:
        terminated["startedAt"] = format_time(ended.started_at)
    terminated["finishedAt"] = format_time(ended.finished_at)
    return terminated


def _build_conditions(pod: Object, state: PodState, phase: str, now: datetime) -> list[Condition]:
    old = list_conditions(pod)
    unready = [item.name for item in state.containers if item.stage is not Stage.RUNNING]
    reason, message = "", ""
    if phase == "Succeeded":
        reason = "PodCompleted"
    elif phase == "Failed":
        reason = "PodFailed"
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    initialized_reason = "PodCompleted" if phase == "Succeeded" else ""
    wanted = [
        _condition(old, "Initialized", True, initialized_reason, "", now),
        _condition(old, "Ready", not reason, reason, message, now),
        _condition(old, "ContainersReady", not reason, reason, message, now),
        _condition(old, "PodScheduled", True, "", "", now),
    ]
    names = {condition["type"] for condition in wanted}
    return [*wanted, *(condition for condition in old if condition.get("type") not in names)]


def _condition(old: list[Condition], kind: str, status: bool, reason: str, message: str, now: datetime) -> Condition:
    text = "True" if status else "False"
    before = find_condition(old, kind)
    since = format_time(now)
    if before is not None and before.get("status") == text and before.get("lastTransitionTime"):
        since = before["lastTransitionTime"]
    condition: Condition = {"type": kind, "status": text, "lastProbeTime": None, "lastTransitionTime": since}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition
