"""The columns of a Pod, and those that kinds with a Pod template share.

STATUS sums up phase, conditions and container states in one word, as upstream does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.cells import NONE
from trainmaster.api.declaring.kinds import Column
from trainmaster.api.meta import Object


@dataclass(slots=True)
class PodSummary:
    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0
    last_restart: str = ""


def summarise(pod: Object) -> PodSummary:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    restartable = {c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    summary = PodSummary(status.get("reason") or status.get("phase") or "")
    summary.total = len(spec.get("containers") or ()) + len(restartable)
    scheduled = cells.find_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        summary.reason = "SchedulingGated"
    initialising = _sum_up_init(summary, spec, status, restartable)
    if not initialising or cells.is_condition_true(pod, "Initialized"):
        _sum_up_containers(summary, pod, restartable)
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _sum_up_init(summary: PodSummary, spec: Object, status: Object, restartable: set[str]) -> bool:
    """True while init containers have not all succeeded."""
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        _count_restarts(summary, container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in restartable and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            summary.reason = "Init:" + _end_of(terminated)
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            summary.reason = f"Init:{waiting['reason']}"
        else:
            summary.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        return True
    return False


def _sum_up_containers(summary: PodSummary, pod: Object, restartable: set[str]) -> None:
    status = pod.get("status") or {}
    summary.restarts, summary.last_restart, running = 0, "", False
    for container in status.get("initContainerStatuses") or ():
        if container.get("name") in restartable:
            _count_restarts(summary, container)
    for container in reversed(status.get("containerStatuses") or ()):
        _count_restarts(summary, container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if (state.get("waiting") or {}).get("reason"):
            summary.reason = state["waiting"]["reason"]
        elif terminated is not None:
            summary.reason = _end_of(terminated)
        elif container.get("ready") and "running" in state:
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if cells.is_condition_true(pod, "Ready") else "NotReady"


def _end_of(terminated: Object) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _count_restarts(summary: PodSummary, container: Object) -> None:
    summary.restarts += container.get("restartCount", 0)
    ended = (container.get("lastState") or {}).get("terminated") or {}
    summary.last_restart = max(summary.last_restart, ended.get("finishedAt") or "")


def get_ready(pod: Object, now: float) -> str:
    summary = summarise(pod)
    return f"{summary.ready}/{summary.total}"


def get_restarts(pod: Object, now: float) -> str:
    summary = summarise(pod)
    if summary.restarts and summary.last_restart:
        return f"{summary.restarts} ({cells.render_age(summary.last_restart, now)} ago)"
    return str(summary.restarts)


def _get_gates(pod: Object, now: float) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or []
    if not gates:
        return NONE
    return f"{sum(cells.is_condition_true(pod, gate['conditionType']) for gate in gates)}/{len(gates)}"


def _list_containers(field: str, obj: Object, now: float) -> str:
    pod = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    return cells.join(str(container.get(field, "")) for container in pod.get("containers") or ())


def _get_selector(obj: Object, now: float) -> str:
    return cells.format_labels(((obj.get("spec") or {}).get("selector") or {}).get("matchLabels"))


COLUMNS = (
    cells.NAME,
    Column("Ready", get_ready, description="Ready containers of all containers."),
    Column("Status", lambda pod, now: summarise(pod).reason, description="What the Pod is doing, in one word."),
    Column("Restarts", get_restarts, description="Restarts of its containers, and when the last one was."),
    cells.AGE,
    Column("IP", lambda pod, now: pod.get("status", {}).get("podIP") or NONE, priority=1),
    Column("Node", lambda pod, now: pod.get("spec", {}).get("nodeName") or NONE, priority=1),
    Column("Nominated Node", lambda pod, now: pod.get("status", {}).get("nominatedNodeName") or NONE, priority=1),
    Column("Readiness Gates", _get_gates, priority=1),
)

TEMPLATE_COLUMNS = (
    Column("Containers", partial(_list_containers, "name"), priority=1),
    Column("Images", partial(_list_containers, "image"), priority=1),
    Column("Selector", _get_selector, priority=1),
)
"""The wide columns of a kind with a Pod template and a selector."""
