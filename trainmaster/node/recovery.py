"""Rebuilds a Pod's state from its object and its directory when the control plane starts. Pure.

The directory takes precedence, because it is written first. If it is missing (removed, or the home was moved to another
machine) the object's status is used: what it reports as running is never started again. After a reboot, or without its
directory, a Pod counts as disrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING, read_fields, read_text
from trainmaster.jobs.models.pods import Pod, read_last_terminated, read_terminated
from trainmaster.kit.clock import parse_time
from trainmaster.node.machine.model import PodPlan
from trainmaster.node.machine.outcome import RULES, SUCCEEDED, RestartRules, find_outcome
from trainmaster.node.machine.state import (
    ContainerEnd,
    ContainerStage,
    ContainerState,
    Ending,
    HookStage,
    Moment,
    PodState,
    make_state,
    mark_ended,
)
from trainmaster.node.shims.pod_directory import FoundAttempt, FoundPod
from trainmaster.shim.protocol import Exited, Started

LOST = "ContainerStatusUnknown"
LOST_TEXT = "The container could not be located when the pod was terminated"
DISRUPTED = Ending("Terminated", "the machine was restarted while the Pod ran", disruption="TerminationByKubelet")


def read_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def read_started(started: Started | None) -> datetime | None:
    return read_time(started.at) if started is not None and started.at else None


def build_ended(exited: Exited, started: Started | None, now: datetime) -> ContainerEnd:
    """In API terms."""
    begun = read_started(started)
    finished = read_time(exited.at) if exited.at else now
    if exited.error:
        return ContainerEnd(exited.code, begun, finished, "StartError", exited.error)
    reason = "OOMKilled" if exited.oom_killed else "Completed" if exited.code == 0 else "Error"
    return ContainerEnd(exited.code, begun, finished, reason, exited.message, exited.signal)


def build_lost(begun: datetime | None, now: datetime) -> ContainerEnd:
    return ContainerEnd(137, begun, now, LOST, LOST_TEXT)


def note_ended(state: PodState, name: str, attempt: int, exited: Exited, now: Moment) -> PodState:
    """The shim reported how an attempt ended."""
    ended = build_ended(exited, None, now.wall)
    return mark_ended(state, name, attempt, replace(ended, started_at=state.get(name).started_at), now)


def note_lost(state: PodState, now: Moment) -> PodState:
    """The shim died, and everything it ran with it."""
    for container in state.containers:
        if container.is_alive:
            lost = build_lost(container.started_at, now.wall)
            state = mark_ended(state, container.name, container.attempt, lost, now)
    return state


def rebuild_state(pod: Pod, plan: PodPlan, found: FoundPod, now: Moment, rules: RestartRules = RULES) -> PodState:
    begun = pod.started_at
    state = make_state(plan, now, started_at=parse_time(begun) if begun else None)
    shown = {entry["name"]: entry for entry in (*pod.container_statuses, *pod.init_container_statuses)}
    is_lost = False
    for spec in plan.containers:
        attempts = [attempt for attempt in found.attempts if attempt.container == spec.name]
        if attempts:
            container, lost = _read_attempts(spec.name, attempts, found, now, rules)
        else:
            container, lost = _read_shown(spec.name, shown.get(spec.name, NOTHING), now)
        is_lost = is_lost or (lost and (found.rebooted or not attempts))
        state = state.put(_restore_health(container, shown.get(spec.name, NOTHING)))
    main_known = any(_is_known(state.get(spec.name)) for spec in plan.mains)
    if main_known or pod.is_true("Initialized"):
        state = replace(state, is_initialized=True)
    # Pods that nothing would replace are restarted in place.
    if is_lost and plan.policy != "Always" and find_outcome(plan, state) != SUCCEEDED:
        state = replace(state, ending=DISRUPTED)
    return state


def _is_known(container: ContainerState) -> bool:
    return container.has_run or container.last is not None


def _read_attempts(
    name: str, attempts: Sequence[FoundAttempt], found: FoundPod, now: Moment, rules: RestartRules
) -> tuple[ContainerState, bool]:
    """The newest attempt, and whether it was lost."""
    *before, newest = attempts
    container = ContainerState(name, newest.number, series=_count_series(attempts, rules))
    if before:
        container = replace(container, last=_end_of(before[-1], now))
    begun = read_started(newest.started)
    if newest.started is None:
        return container, False
    if begun is not None:
        container = replace(container, started_at=begun, since=now.anchor(begun))
    if newest.exited is not None:
        ended = build_ended(newest.exited, newest.started, now.wall)
        return replace(container, stage=ContainerStage.ENDED, ended=ended, over=now.anchor(ended.finished_at)), False
    if found.alive:
        return replace(container, stage=ContainerStage.RUNNING if begun is not None else ContainerStage.STARTING), False
    return replace(container, stage=ContainerStage.ENDED, ended=build_lost(begun, now.wall), over=now.boot), True


def _end_of(attempt: FoundAttempt, now: Moment) -> ContainerEnd:
    if attempt.exited is not None:
        return build_ended(attempt.exited, attempt.started, now.wall)
    return build_lost(read_started(attempt.started), now.wall)


def _count_series(attempts: Sequence[FoundAttempt], rules: RestartRules) -> int:
    """Restarts since an attempt last ran for long; the newest one is judged when it ends."""
    series = 0
    for attempt in attempts[:-1]:
        ran = attempt.exited.at - attempt.started.at if attempt.exited and attempt.started else 0.0
        series = 1 if ran >= rules.reset else series + 1
    return series


def _read_shown(name: str, shown: Fields, now: Moment) -> tuple[ContainerState, bool]:
    """Without any record: uses the status in the API. A container that was running is lost."""
    attempt = int(shown.get("restartCount") or 0)
    current, last = read_fields(shown, "state"), read_last_terminated(shown)
    container = ContainerState(name, attempt, series=attempt)
    ended = read_terminated(shown)
    if "waiting" in current and last:
        ended, last = last, NOTHING
    if last:
        container = replace(container, last=_read_terminated(last, now))
    if ended:
        read = _read_terminated(ended, now)
        return replace(container, stage=ContainerStage.ENDED, ended=read, over=now.anchor(read.finished_at)), False
    if "running" in current:
        moment = current["running"].get("startedAt")
        lost = build_lost(parse_time(moment) if moment else None, now.wall)
        return replace(container, stage=ContainerStage.ENDED, ended=lost, over=now.boot), True
    return container, False


def _read_terminated(raw: Fields, now: Moment) -> ContainerEnd:
    begun, finished = raw.get("startedAt"), raw.get("finishedAt")
    return ContainerEnd(
        int(raw.get("exitCode") or 0),
        parse_time(begun) if begun else None,
        parse_time(finished) if finished else now.wall,
        read_text(raw, "reason"),
        read_text(raw, "message"),
        int(raw.get("signal") or 0),
    )


def _restore_health(container: ContainerState, shown: Fields) -> ContainerState:
    """Results of hooks and probes from the API status; there is no need to run them again."""
    if container.stage is not ContainerStage.RUNNING or shown.get("restartCount") != container.attempt:
        return container
    if "running" not in read_fields(shown, "state"):
        return container
    return replace(
        container,
        post_start=HookStage.DONE,
        is_started=bool(shown.get("started")),
        is_ready=bool(shown.get("ready")),
    )
