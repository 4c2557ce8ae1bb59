"""Plays a Pod against the pure machine in virtual time: `Player` stands for the agent and for the processes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import format_time
from trainmaster.node.machine import state as states
from trainmaster.node.machine.decide import decide
from trainmaster.node.machine.model import ProbeKind, read_plan
from trainmaster.node.machine.outcome import RULES, RestartRules, decide_phase
from trainmaster.node.machine.probes import ProbeAnswer, mark_answer
from trainmaster.node.machine.state import ContainerEnd, Moment, PodState
from trainmaster.node.machine.steps import EventNote, Instruction, Start
from trainmaster.node.status import build_status

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def make_pod(*containers: str | Object, inits: tuple[Object, ...] = (), policy: str = "Never", **spec: Any) -> Object:
    entries = [{"name": item, "image": "i"} if isinstance(item, str) else item for item in containers or ("node",)]
    full = {"containers": entries, "restartPolicy": policy, **spec}
    if inits:
        full["initContainers"] = list(inits)
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": full}


def container(name: str = "node", **fields: Any) -> Object:
    return {"name": name, "image": "i", **fields}


def sidecar(name: str, **fields: Any) -> Object:
    return {"name": name, "image": "i", "restartPolicy": "Always", **fields}


class Player:
    def __init__(self, pod: Object, rules: RestartRules = RULES) -> None:
        self.pod = pod
        self.plan = read_plan(Pod(pod))
        self.rules = rules
        self.seconds = 0.0
        self.state: PodState = states.make_state(self.plan, self.now)
        self.wake: float | None = None
        self.said: list[EventNote] = []

    @property
    def now(self) -> Moment:
        return Moment(1000.0 + self.seconds, NOW + timedelta(seconds=self.seconds))

    @property
    def phase(self) -> str:
        return decide_phase(self.plan, self.state)

    @property
    def status(self) -> Object:
        return build_status(Pod(self.pod), self.plan, self.state, self.now.wall)

    def look(self) -> list[Instruction]:
        """One question to the machine; what is only said is kept apart."""
        step = decide(self.plan, self.state, self.now, self.rules)
        self.state = step.state
        self.wake = step.wake_after
        self.said += [item for item in step.instructions if isinstance(item, EventNote)]
        return [item for item in step.instructions if not isinstance(item, EventNote)]

    def wait(self, seconds: float) -> list[Instruction]:
        self.seconds += seconds
        return self.look()

    def begin(self, name: str, attempt: int = 0) -> list[Instruction]:
        self.state = states.mark_started(self.state, name, attempt, self.now.wall, self.now)
        return self.look()

    def end(self, name: str, code: int = 0, attempt: int = 0, signal: int = 0) -> list[Instruction]:
        began = self.state.get(name).started_at
        reason = "Completed" if code == 0 else "Error"
        ended = ContainerEnd(code, began, self.now.wall, reason, signal=signal)
        self.state = states.mark_ended(self.state, name, attempt, ended, self.now)
        return self.look()

    def answer(self, name: str, kind: ProbeKind, ok: bool, attempt: int = 0) -> list[Instruction]:
        answer = ProbeAnswer(name, attempt, kind, ok, "" if ok else "refused")
        self.state, says = mark_answer(self.plan, self.state, answer, self.now)
        self.said += says
        return self.look()

    def mark(self, change: Callable[[PodState], PodState]) -> list[Instruction]:
        self.state = change(self.state)
        return self.look()

    def delete(self, grace: int = 30) -> list[Instruction]:
        """As the API server: a second request may shorten the grace period and keeps the time of the first."""
        meta = self.pod["metadata"]
        requested = self.now.wall if self.plan.deletion is None else self.plan.deletion.requested
        meta["deletionTimestamp"] = format_time(requested + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        self.plan = read_plan(Pod(self.pod))
        return self.look()

    def run_all(self) -> None:
        """Starts whatever the machine asks for, until it asks for nothing more."""
        todo = self.look()
        while todo:
            starts = [item for item in todo if isinstance(item, Start)]
            todo = []
            for item in starts:
                todo += self.begin(item.container, item.attempt)
