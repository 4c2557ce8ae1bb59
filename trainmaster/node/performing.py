"""Carries out the state machine's instructions. Slow ones (starts, hooks, probes) run as tasks.

A task ends by adding an observation to the Pod's state and waking the agent; no decisions are made here. Nothing is
started before the Pod object is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence

from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.engine.events import Recorder
from trainmaster.engine.plan import Note
from trainmaster.engine.queue import WorkQueue
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.node.checks import ProbeOutcome, ProbeTarget, check, run_hook
from trainmaster.node.launch.contract import FAILED_MOUNT, POD_ENDS, START_ERROR, LaunchError, get_container
from trainmaster.node.machine import state as states
from trainmaster.node.machine.outcome import end_pod
from trainmaster.node.machine.probes import ProbeAnswer, mark_answer
from trainmaster.node.machine.state import ContainerEnd, Ending, Moment, PodState
from trainmaster.node.machine.steps import Confirm, EventNote, Hook, Instruction, Kill, Notice, Probe, Signal, Start
from trainmaster.node.runner import CREATE_ERROR, PodRunner, Ready
from trainmaster.node.shims.access import PodAccess
from trainmaster.node.tracked import Change, TrackedPod

log = logging.getLogger(__name__)

REPORTER = "trainmaster-node"


class Performer:
    """The agent handles Pods that are added to `queue`."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        runner: PodRunner,
        access: PodAccess,
        clock: Clock,
        queue: WorkQueue[str],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._runner = runner
        self._access = access
        self._clock = clock
        self._wake = queue.add
        self._wake_later = queue.add_after
        self._scope: Scope | None = None

    def attach(self, scope: Scope) -> None:
        """Tasks run in that scope."""
        self._scope = scope

    def get_moment(self) -> Moment:
        return Moment(self._clock.boot(), self._clock.now())

    async def perform(self, pod: TrackedPod, instructions: Sequence[Instruction]) -> None:
        """Everything except Confirm, which comes after the last report."""
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
                    self._runner.write_notice(pod.uid, item)
                    if pod.starting is not None:
                        pod.starting.cancel()
                case EventNote(reason, message, warning):
                    await self.record_event(pod, reason, message, warning=warning, action="Running")
                case Hook():
                    self._spawn(pod, self._run_hook(pod, item), "hook")
                case Probe():
                    self._spawn(pod, self._probe(pod, item), "probe")
                case Start() | Confirm():
                    pass

    async def record_event(
        self, pod: TrackedPod, reason: str, text: str, *, warning: bool = False, action: str = "Starting"
    ) -> None:
        await self._recorder.record(Note(pod.obj.raw, reason, text, warning=warning, action=action), REPORTER)

    def _spawn(self, pod: TrackedPod, work: Coroutine[None, None, None], what: str) -> asyncio.Task[None]:
        assert self._scope is not None, "the agent runs"
        task = self._scope.spawn_guarded(work, name=f"node.{what}.{pod.uid}")
        pod.tasks.add(task)
        task.add_done_callback(pod.tasks.discard)
        return task

    async def _start(self, pod: TrackedPod, starts: Sequence[Start]) -> None:
        """Can be cancelled during preparation, when nothing has started; after that it runs to its end."""
        is_settled = False
        try:
            ready, refused = await self._prepare(pod, starts)
            pod.starting = None
            refused |= await self._runner.launch(pod.obj, ready)
            for item, error in refused.items():
                self._refuse(pod, item, error)
            is_settled = True
        except asyncio.CancelledError:
            for item in starts:
                pod.change(_give_up(item))
            is_settled = True
            raise
        finally:
            # On any error, nothing stays "starting" forever; a container that has started nevertheless reports itself.
            broken = LaunchError(CREATE_ERROR, "internal error, see the server's log")
            for item in () if is_settled else starts:
                self._refuse(pod, item, broken)
            self._wake(pod.uid)
        await self._tell(pod, ready, refused)

    async def _prepare(self, pod: TrackedPod, starts: Sequence[Start]) -> tuple[Ready, dict[Start, LaunchError]]:
        """Files are prepared while the Pod is written to disk: what a crash leaves of them is removed as a stray."""
        try:
            prepared = await self._runner.prepare(pod.obj, starts)
            await self._client.durable(int(pod.obj.resource_version))
            return prepared
        except (StatusError, OSError) as failure:
            return Ready(), dict.fromkeys(starts, LaunchError(CREATE_ERROR, str(failure)))

    async def _tell(self, pod: TrackedPod, ready: Ready, refused: Mapping[Start, LaunchError]) -> None:
        for error in {(error.reason, error.message): error for error in refused.values()}.values():
            await self.record_event(pod, *_describe(error), warning=True)
        news = [note for note in ready.notes if note not in pod.said]
        pod.said.update(news)
        for note in news:
            await self.record_event(pod, "Approximated", note)
        if ready.passed_over and ready.passed_over not in pod.said:
            pod.said.add(ready.passed_over)
            await self.record_event(pod, "CheckpointDamaged", ready.passed_over, warning=True)

    def record_start(self, pod: TrackedPod, container: str, attempt: int, note: str) -> None:
        """Once per start, which may be reported twice."""
        text = f"Container {container} {note}"
        if (seen := f"{attempt} {text}") not in pod.said:
            pod.said.add(seen)
            self._spawn(pod, self.record_event(pod, "WarmStart", text), "record_event")

    async def _run_hook(self, pod: TrackedPod, hook: Hook) -> None:
        target = _make_target(pod, hook.container)
        try:
            async with asyncio.timeout(hook.timeout):
                failure = await run_hook(self._access, target, hook.handler, self._clock)
        except TimeoutError:
            failure = f"{hook.kind} hook did not end within the grace period"
        if hook.kind == "preStop":
            pod.change(lambda state: states.mark_pre_stop(state, hook.container, hook.attempt))
        elif not failure:
            pod.change(lambda state: states.mark_post_start(state, hook.container, hook.attempt))
        else:
            now, grace = self.get_moment(), float(pod.plan.grace)
            pod.change(lambda state: states.mark_must_end(state, hook.container, hook.attempt, grace, now))
        self._wake(pod.uid)
        if failure:
            reason = "FailedPreStopHook" if hook.kind == "preStop" else "FailedPostStartHook"
            await self.record_event(pod, reason, f"{reason.removeprefix('Failed')} failed: {failure}", warning=True)

    async def _probe(self, pod: TrackedPod, probe: Probe) -> None:
        target = _make_target(pod, probe.container)
        try:
            async with asyncio.timeout(probe.spec.timeout):
                outcome = await check(self._access, target, probe.spec.handler)
        except TimeoutError:
            outcome = ProbeOutcome(ok=False, text=f"timed out after {probe.spec.timeout:g}s")
        answer = ProbeAnswer(probe.container, probe.attempt, probe.kind, outcome.ok, outcome.text)
        said: list[EventNote] = []

        def count(state: PodState) -> PodState:
            new, words = mark_answer(pod.plan, state, answer, self.get_moment())
            said.extend(words)
            return new

        before = pod.state
        pod.change(count)
        if before is None or pod.state is None or _needs_pass(before, pod.state, probe):
            self._wake(pod.uid)
        elif pod.state is not None:
            self._wake_later(pod.uid, pod.state.get(probe.container).probes[probe.kind].due - self._clock.boot())
        for item in said:
            await self.record_event(pod, item.reason, item.message, warning=item.warning, action="Running")

    def _refuse(self, pod: TrackedPod, item: Start, error: LaunchError) -> None:
        now = self.get_moment()
        if error.reason in POD_ENDS:
            ending = Ending(error.reason, error.message)
            pod.change(lambda state: end_pod(pod.plan, _give_up(item)(state), ending))
        elif error.reason == START_ERROR:
            ended = ContainerEnd(128, None, now.wall, START_ERROR, error.message)
            pod.change(lambda state: states.mark_ended(state, item.container, item.attempt, ended, now))
        else:
            # The kubelet reports what a mount waits for only in an event; here the status shows it too.
            reason = "ContainerCreating" if error.reason == FAILED_MOUNT else error.reason
            why = (reason, error.message)
            pod.change(lambda state: states.mark_blocked(state, item.container, item.attempt, why, now))


def _make_target(pod: TrackedPod, container: str) -> ProbeTarget:
    return ProbeTarget(pod.uid, get_container(pod.obj, container))


def _needs_pass(before: PodState, after: PodState, probe: Probe) -> bool:
    """Whether an answer changed more than a count; most do not."""
    old, new = before.get(probe.container), after.get(probe.container)
    return (old.is_ready, old.is_started, old.stop) != (new.is_ready, new.is_started, new.stop) or (
        probe.kind not in new.probes
    )


def _describe(error: LaunchError) -> tuple[str, str]:
    if error.reason == FAILED_MOUNT or error.reason in POD_ENDS:
        return error.reason, error.message
    return "Failed", f"Error: {error.message}"


def _give_up(item: Start) -> Change:
    return lambda state: states.mark_not_begun(state, item.container, item.attempt)
