"""Carries out what the machine asks for. Quick things at once, slow ones (starting, hooks, probes) as tasks.

A task ends by noting an observation in the Pod's state and waking the agent; nothing is decided here. Nothing is
started before the Pod object is durable (design 11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence

from trainmaster.client.contract import Client
from trainmaster.engine.events import Recorder
from trainmaster.engine.plan import Note
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.node.launch import LaunchError
from trainmaster.node.machine import state as states
from trainmaster.node.machine.state import Ended, Moment, PodState
from trainmaster.node.machine.steps import Confirm, Instruction, Kill, Notice, Say, Signal, Start
from trainmaster.node.runner import PodRunner
from trainmaster.node.tracked import TrackedPod

log = logging.getLogger(__name__)

REPORTER = "trainmaster-node"


class Performer:
    """`wake(uid)` makes the agent look at the Pod again."""

    def __init__(
        self, client: Client, recorder: Recorder, runner: PodRunner, clock: Clock, wake: Callable[[str], None]
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._runner = runner
        self._clock = clock
        self._wake = wake
        self._scope: Scope | None = None

    def attach(self, scope: Scope) -> None:
        """Tasks live in that scope."""
        self._scope = scope

    def get_moment(self) -> Moment:
        return Moment(self._clock.boot(), self._clock.now())

    async def perform(self, pod: TrackedPod, instructions: Sequence[Instruction]) -> None:
        """All but Confirm, which comes after the last report."""
        starts = [item for item in instructions if isinstance(item, Start)]
        if starts:
            pod.starts_since = self._clock.boot()
            pod.starting = self._spawn(pod, self._start(pod, starts), "start")
        for item in instructions:
            match item:
                case Signal(container, number):
                    await self._runner.signal(pod.uid, container, number)
                case Kill(container):
                    await self._runner.kill(pod.uid, container)
                case Notice():
                    if pod.starting is not None:
                        pod.starting.cancel()
                case Say(reason, message, warning):
                    await self.say(pod, reason, message, warning=warning, action="Running")
                case Start() | Confirm():
                    pass
                case _:
                    raise AssertionError(f"not carried out: {item}")

    async def say(
        self, pod: TrackedPod, reason: str, text: str, *, warning: bool = False, action: str = "Starting"
    ) -> None:
        await self._recorder.record(Note(pod.obj, reason, text, warning=warning, action=action), REPORTER)

    def _spawn(self, pod: TrackedPod, work: Coroutine[None, None, None], what: str) -> asyncio.Task[None]:
        assert self._scope is not None, "the agent runs"
        task = self._scope.spawn_guarded(work, name=f"node.{what}.{pod.uid}")
        pod.tasks.add(task)
        task.add_done_callback(pod.tasks.discard)
        return task

    async def _start(self, pod: TrackedPod, starts: Sequence[Start]) -> None:
        """Cancelled while it prepares, nothing has begun; afterwards it is not cancelled while this process lives."""
        try:
            await self._client.durable(int(pod.obj["metadata"]["resourceVersion"]))
            prepared, refused = await self._runner.prepare(pod.obj, starts)
        except asyncio.CancelledError:
            for item in starts:
                pod.change(_give_up(item))
            self._wake(pod.uid)
            raise
        pod.starting = None
        for item, error in refused.items():
            pod.change(self._refuse(item, error))
            await self.say(pod, "Failed", f"Error: {error}", warning=True)
        notes = await self._runner.launch(pod.obj, prepared)
        self._wake(pod.uid)
        for text in notes:
            await self.say(pod, "Approximated", text)

    def _refuse(self, item: Start, error: LaunchError) -> Callable[[PodState], PodState]:
        now = self.get_moment()
        ended = Ended(128, None, now.wall, "StartError", str(error))
        return lambda state: states.mark_ended(state, item.container, item.attempt, ended, now)


def _give_up(item: Start) -> Callable[[PodState], PodState]:
    return lambda state: states.mark_not_begun(state, item.container, item.attempt)
