"""Decides what should happen to a Pod now. Pure; see the package for the guarantees.

Stops everything if the Pod is deleted, past its deadline, evicted or disrupted. Otherwise runs init containers and
sidecars in order, then the main containers, with restarts, back-off, hooks and probes. When the main containers have
ended, stops the sidecars in reverse order.
"""

from __future__ import annotations

from dataclasses import replace

from trainmaster.node.machine import probes
from trainmaster.node.machine.model import ContainerPlan, ContainerRole, PodDeletion, PodPlan, ProbeKind
from trainmaster.node.machine.outcome import (
    FAILED,
    RULES,
    RestartRules,
    find_outcome,
    get_restart_delay,
    is_complete,
    will_restart,
)
from trainmaster.node.machine.state import (
    ContainerEnd,
    ContainerStage,
    ContainerState,
    Ending,
    HookStage,
    Moment,
    PodState,
    mark_ended,
)
from trainmaster.node.machine.steps import Confirm, EventNote, Hook, Instruction, Notice, Probe, Start, Step
from trainmaster.node.machine.stopping import advance_stop, begin_stop

DEADLINE = Ending("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


def decide(plan: PodPlan, state: PodState, now: Moment, rules: RestartRules = RULES) -> Step:
    pass_ = _Pass(plan, state, now, rules)
    pass_.run()
    wake = None if pass_.wake_at is None else max(pass_.wake_at - now.boot, 0.0)
    return Step(pass_.state, tuple(pass_.instructions), wake)


class _Pass:
    def __init__(self, plan: PodPlan, state: PodState, now: Moment, rules: RestartRules) -> None:
        self.plan = plan
        self.state = state
        self.now = now
        self.rules = rules
        self.instructions: list[Instruction] = []
        self.wake_at: float | None = None

    def run(self) -> None:
        self._check_deadline()
        deletion = self.plan.deletion
        if deletion is not None or self.state.ending is not None:
            self._stop_all(deletion)
            return
        outcome = find_outcome(self.plan, self.state)
        if outcome is not None:
            self._finish(outcome)
            return
        for spec in self.plan.containers:
            self._handle_running(spec)
        self._advance()

    # The Pod as a whole

    def _check_deadline(self) -> None:
        limit = self.plan.active_deadline
        if limit is None or self.state.ending is not None or find_outcome(self.plan, self.state) is not None:
            return
        at = self.state.since + limit
        if self.now.boot < at:
            self._wake(at)
            return
        self.state = replace(self.state, ending=DEADLINE)
        self._do(EventNote(DEADLINE.reason, DEADLINE.message, warning=True))

    def _stop_all(self, deletion: PodDeletion | None) -> None:
        if not self.state.is_alive:
            if deletion is not None and not self.state.is_confirmed:
                self.state = replace(self.state, is_confirmed=True)
                self._do(Confirm())
            return
        if deletion is None:
            assert self.state.ending is not None
            self._stop(self._get_own_deadline(), self.state.ending.reason)
            return
        if self.state.deletion_seen is None:
            # The stored time is truncated to seconds: never kill before the full grace period.
            seen = min(self.now.boot, self.now.anchor(deletion.requested) + 1.0)
            self.state = replace(self.state, deletion_seen=seen)
        assert self.state.deletion_seen is not None
        self._stop(self.state.deletion_seen + deletion.grace, "Deleted")

    def _finish(self, outcome: str) -> None:
        """Only sidecars may be left (an init container that failed leaves those before it)."""
        if self.state.is_alive:
            self._stop(self._get_own_deadline(), "Failed" if outcome == FAILED else "Completed")

    def _get_own_deadline(self) -> float:
        """For a stop that was not caused by a deletion."""
        if self.state.stop_seen is None:
            self.state = replace(self.state, stop_seen=self.now.boot)
        assert self.state.stop_seen is not None
        ending = self.state.ending
        grace = self.plan.grace if ending is None or ending.grace is None else ending.grace
        return self.state.stop_seen + grace

    def _stop(self, deadline: float, reason: str) -> None:
        if not self.state.is_noticed:
            self.state = replace(self.state, is_noticed=True)
            self._do(Notice(reason, max(deadline - self.now.boot, 0.0)))
        # All other containers stop together; each sidecar waits for those that were started after it.
        is_turn = not any(
            self.state.get(spec.name).is_alive
            for spec in self.plan.containers
            if spec.role is not ContainerRole.SIDECAR
        )
        for spec in reversed(self.plan.containers):
            container = self.state.get(spec.name)
            if not container.is_alive:
                continue
            if container.stop is None and container.stage is ContainerStage.RUNNING:
                self._do(EventNote("Killing", f"Stopping container {spec.name}"))
            is_sidecar = spec.role is ContainerRole.SIDECAR
            self._advance_stop(spec, begin_stop(container, deadline), is_turn=is_turn or not is_sidecar)
            is_turn = is_turn and not is_sidecar

    def _advance_stop(self, spec: ContainerPlan, container: ContainerState, *, is_turn: bool = True) -> None:
        pursuit = advance_stop(spec, container, self.now, is_turn=is_turn)
        self.state = self.state.put(pursuit.container)
        self._do(*pursuit.instructions)
        if pursuit.wake_at is not None:
            self._wake(pursuit.wake_at)

    # Containers that run

    def _handle_running(self, spec: ContainerPlan) -> None:
        container = self.state.get(spec.name)
        if container.stage is not ContainerStage.RUNNING:
            return
        if container.stop is not None:
            self._advance_stop(spec, container)
            return
        if spec.post_start is not None and container.post_start is not HookStage.DONE:
            if container.post_start is HookStage.NONE:
                self.state = self.state.put(replace(container, post_start=HookStage.RUNNING))
                self._do(Hook(spec.name, container.attempt, "postStart", spec.post_start))
            return
        wanted = spec.probes or {}
        started = container.is_started or ProbeKind.STARTUP not in wanted
        ready = container.is_ready or (started and ProbeKind.READINESS not in wanted)
        container = replace(container, is_started=started, is_ready=ready)
        for kind, probe in probes.list_active(spec, container):
            known = probes.get_state(container, kind, probe)
            if known.is_running:
                continue
            if known.due > self.now.boot:
                self._wake(known.due)
                continue
            container = probes.mark_asked(container, kind, known, probe.period, self.now)
            self._do(Probe(spec.name, container.attempt, kind, probe))
        self.state = self.state.put(container)

    # Containers that should run

    def _advance(self) -> None:
        if not self.state.is_initialized:
            for spec in self.plan.containers:
                if spec.role is ContainerRole.MAIN:
                    break
                container = self.state.get(spec.name)
                if spec.is_satisfied and container.stage is ContainerStage.WAITING:
                    ended = ContainerEnd(0, self.now.wall, self.now.wall, "Completed")
                    self.state = mark_ended(self.state, spec.name, container.attempt, ended, self.now)
                elif not is_complete(spec, container):
                    self._ensure(spec)
                    return
            self.state = replace(self.state, is_initialized=True)
        for spec in self.plan.containers:
            if spec.role is not ContainerRole.INIT:
                self._ensure(spec)

    def _ensure(self, spec: ContainerPlan) -> None:
        container = self.state.get(spec.name)
        if container.stage is ContainerStage.WAITING:
            if container.blocked is not None:
                again = container.blocked.since + self.rules.retry.delay(container.blocked.tries)
                if again > self.now.boot:
                    self._wake(again)
                    return
            self._start(container)
        elif container.stage is ContainerStage.ENDED and will_restart(self.plan, self.state, container):
            self._restart(container)

    def _restart(self, container: ContainerState) -> None:
        delay = get_restart_delay(container, self.rules)
        at = container.over + delay
        if at > self.now.boot:
            self._wake(at)
            if not container.is_backoff_announced:
                self.state = self.state.put(replace(container, is_backoff_announced=True))
                who = f"{self.plan.name}_{self.plan.namespace}({self.plan.uid})"
                text = f"Back-off restarting failed container {container.name} in pod {who}"
                self._do(EventNote("BackOff", text, warning=True))
            return
        series = 0 if delay == 0.0 else container.series
        self._start(ContainerState(container.name, container.attempt + 1, last=container.ended, series=series + 1))

    def _start(self, container: ContainerState) -> None:
        self.state = self.state.put(replace(container, stage=ContainerStage.STARTING))
        self._do(Start(container.name, container.attempt))

    def _do(self, *instructions: Instruction) -> None:
        self.instructions.extend(instructions)

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)
