"""Runs controllers: sources fill queues, workers reconcile and apply plans. All tasks belong to one scope.

One pass reads the view, gets a plan, applies it, sends its events and schedules the next pass. A temporary refusal is
retried with back-off. Any other refusal is passed to the reconciler immediately, as data; it returns a plan that only
reports it, and the object is retried with back-off. So nothing loops without a pause.

On a cluster the view is stale. After its own writes an object is not reconciled again until the view shows them: a
decision based on an older state could repeat what was undone since, and mostly ends in a conflict.

A pass over a Job with thousands of Pods takes long, and the counts that it stores trigger the next one. So a long pass
without other writes is followed by a proportional pause (`_decide_rest`), so that one object never blocks the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from trainmaster.api.meta import GVR, Object
from trainmaster.client.view import ContentUnavailable, LaggingView, PartialView, View, ask_whole
from trainmaster.client.writes import Version, WriteRefusal
from trainmaster.engine.apply import LARGEST, Apply, is_passing
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import Recorder
from trainmaster.engine.feed import Feed
from trainmaster.engine.metrics import PASSES, QUEUE_DEPTH, SECONDS, WRITES
from trainmaster.engine.plan import Perform, Plan
from trainmaster.engine.queue import QueuePace, WorkQueue
from trainmaster.engine.queue_meter import QueueMeter
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, find_owner_kind, is_report, wait_for_nothing
from trainmaster.kit import logs
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.scopes import Scope
from trainmaster.kit.steps import take_steps
from trainmaster.kit.timeline import Timeline

log = logging.getLogger(__name__)

_LONG = 0.01
"""Seconds of a pass above which its object pauses."""
_SHARE = 4.0
"""Seconds of pause per second of the pass: such an object gets a fifth of the loop."""
_LONGEST_REST = 1.0
_LONGEST_LAG = 30.0
"""Maximum seconds to wait for the view; conflicts are better than no progress."""


class Manager:
    def __init__(
        self,
        controllers: Sequence[Controller],
        *,
        view: View,
        feed: Feed,
        apply: Apply,
        recorder: Recorder,
        clock: Clock,
        metrics: Metrics | None = None,
        effects: Mapping[str, Perform] | None = None,
        settled: int = 0,
        meters: Mapping[str, QueueMeter] | None = None,
    ) -> None:
        """`settled`: the newest revision at which the controllers were idle in an earlier process. `meters`: of the
        queues, by controller."""
        self._controllers = tuple(controllers)
        self._view = view
        # Found out once: isinstance of a protocol takes as long as a short pass.
        self._lagging = view if isinstance(view, LaggingView) else None
        self._is_partial = isinstance(view, PartialView)
        self._feed = feed
        self._apply = apply
        self._recorder = recorder
        self._clock = clock
        self._effects = effects or {}
        self._settled = settled
        pace = QueuePace(in_turns=self._lagging is None)
        self._queues = {
            controller.name: WorkQueue[Request](clock, pace=pace, meter=(meters or {}).get(controller.name))
            for controller in self._controllers
        }
        # Per controller, because each depends on different times of the same object.
        self._timelines = {controller.name: Timeline[Request](clock) for controller in self._controllers}
        self._troubles: dict[str, str] = {}
        self._unseen: dict[tuple[str, Request], tuple[float, tuple[Version, ...]]] = {}
        """(controller, request) -> (deadline, what the view must show)."""
        metrics = metrics or Metrics()
        self.passes = metrics.counter(PASSES)
        self.seconds = metrics.histogram(SECONDS)
        self._writes = metrics.counter(WRITES)
        metrics.gauge(QUEUE_DEPTH, self._read_depths)

    @property
    def is_idle(self) -> bool:
        """No request is queued or in progress; future wake-ups do not count."""
        return all(queue.is_idle for queue in self._queues.values())

    @property
    def is_settled(self) -> bool:
        """Idle, and no pass for a change that fans out has failed or must go on: nothing would be lost if the server
        were killed now and did not look at unchanged objects after that."""
        return self.is_idle and all(
            self._queues[controller.name].is_settled
            for controller in self._controllers
            if any(source.fans_out for source in controller.sources)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the controllers."""
        return tuple(controller.name for controller in self._controllers)

    def find_trouble(self, controller: str) -> str:
        """Why the controller makes no progress: the error of its last pass. Empty if there is none."""
        return self._troubles.get(controller, "")

    def add(self, controller: str, request: Request) -> None:
        """Requests a pass, like a source."""
        self._queues[controller].add(request)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Scope("controllers") as scope:
            for gvr in dict.fromkeys(source.gvr for item in self._controllers for source in item.sources):
                work = self._feed.follow(gvr, self._make_notice(gvr))
                scope.spawn_forever(work, name=f"controllers.feed.{gvr.qualified}")
            for controller in self._controllers:
                for number in range(controller.workers):
                    name = f"controllers.{controller.name}.{number}"
                    scope.spawn_forever(self._work(controller), name=name)
            yield

    def _make_notice(self, gvr: GVR) -> Callable[[Object], None]:
        targets: list[tuple[WorkQueue[Request], ChangeSource, bool]] = []
        named: dict[tuple[str, str], list[tuple[WorkQueue[Request], ChangeSource, bool]]] = {}
        for controller in self._controllers:
            queue = self._queues[controller.name]
            own = controller.kind == gvr
            for source in controller.sources:
                if source.gvr == gvr:
                    chosen = targets if source.only is None else named.setdefault(source.only, [])
                    chosen.append((queue, source, own))
        owners = dict.fromkeys(source.owner for _, source, _ in targets if source.owner)
        by_owner = {kind: [one for one in targets if one[1].owner in ("", kind)] for kind in owners}
        unowned = [one for one in targets if not one[1].owner]

        view, settled = self._view, self._settled

        def notice(obj: Object) -> None:
            # An object without a controller may concern any of them.
            kind = find_owner_kind(obj) if by_owner else ""
            chosen = by_owner.get(kind, unowned) if kind else targets
            if named:
                meta = obj["metadata"]
                chosen = [*chosen, *named.get((meta.get("namespace", ""), meta["name"]), ())]
            reports: dict[bool, bool] = {}
            for queue, source, own in chosen:
                if source.fans_out and settled and int(obj["metadata"]["resourceVersion"]) <= settled:
                    continue
                for request in source.requests(view, obj):
                    delay = 0.0 if source.delay is wait_for_nothing else source.delay(view, obj)
                    if delay > 0:
                        queue.add_after(request, delay)
                        continue
                    if own not in reports:
                        reports[own] = is_report(obj, own=own)
                    if reports[own]:
                        queue.add_report(request)
                    else:
                        queue.add(request)

        return notice

    async def _work(self, controller: Controller) -> None:
        queue = self._queues[controller.name]
        while True:
            request = await queue.get()
            logs.enter(controller=controller.name, request=request)
            rest = 0.0
            try:
                rest = await self._pass(controller, queue, request)
            finally:
                queue.done(request, rest)
            # In-process a pass never awaits; let the API server run between two passes.
            await asyncio.sleep(0)

    async def _pass(self, controller: Controller, queue: WorkQueue[Request], request: Request) -> float:
        """Returns the seconds that the object should pause."""
        began = self._clock.monotonic()
        try:
            result, acted = await self._reconcile(controller, queue, request)
            self._troubles.pop(controller.name, None)
        except ContentUnavailable as error:
            log.debug("reading again", extra={"error": str(error)})
            queue.retry(request, error)
            result, acted = "retry", True
        except Exception as error:  # an error of one object must not stop the controller
            delay = queue.retry(request, error)
            log.exception("reconcile failed", extra={"retry_seconds": delay})
            self._troubles[controller.name] = f"the pass over {request} failed: {type(error).__name__}: {error}"
            result, acted = "error", True
        seconds = self._clock.monotonic() - began
        self.passes.add(controller.name, result)
        self.seconds.observe(seconds, controller.name)
        return 0.0 if acted else _decide_rest(seconds)

    async def _reconcile(self, controller: Controller, queue: WorkQueue[Request], request: Request) -> tuple[str, bool]:
        """(result for the metrics, whether it wrote more than a status)."""
        if self._is_behind(controller, request):
            queue.retry(request)
            return "behind", True
        timeline = self._timelines[controller.name]
        if controller.reconcile_in_steps is None:
            plan = await self._decide(controller, request)
        else:
            now = timeline.begin_pass(request)
            plan = await take_steps(controller.reconcile_in_steps(self._view, request, now, ()))
            timeline.end_pass(request, now)
        refusal = await self._carry_out(controller, request, plan)
        if refusal is None:
            queue.forget(request)
            if plan.effects and await self._perform(plan):
                queue.add(request)
            if plan.requeue_after is None:
                return "ok", bool(plan.writes)
            queue.add_after(request, max(plan.requeue_after, 0.001))
            return "wait", bool(plan.writes)
        if is_passing(refusal):
            log.debug("plan refused, reading again", extra={"error": refusal.error.message})
            queue.retry(request, refusal.error)
            return "retry", True
        await self._carry_out(controller, request, await self._decide(controller, request, refusal))
        queue.retry(request)
        return "refused", True

    async def _decide(self, controller: Controller, request: Request, *refusals: WriteRefusal) -> Plan:
        """The plan of a pass. If it lacks a content, that is read, and the pass begins again."""
        timeline = self._timelines[controller.name]

        def reconcile(view: View) -> Plan:
            now = timeline.begin_pass(request)
            plan = controller.reconcile(view, request, now, refusals)
            timeline.end_pass(request, now, complete=not refusals)
            return plan

        return await ask_whole(self._view, reconcile) if self._is_partial else reconcile(self._view)

    def _is_behind(self, controller: Controller, request: Request) -> bool:
        """Whether the view does not show this controller's own writes for the object yet."""
        key = (controller.name, request)
        limit, versions = self._unseen.get(key, (0.0, ()))
        if not versions:
            return False
        view = self._lagging
        assert view is not None, "only noted for such a view"
        if self._clock.monotonic() < limit and not all(view.shows(*version) for version in versions):
            return True
        del self._unseen[key]
        return False

    async def _carry_out(self, controller: Controller, request: Request, plan: Plan) -> WriteRefusal | None:
        writes = plan.all_writes
        if writes:
            applied = await self._apply(writes, controller.name)
            if applied.versions and self._lagging is not None:
                known = self._unseen.get((controller.name, request), (0.0, ()))[1]
                limit = self._clock.monotonic() + _LONGEST_LAG
                self._unseen[controller.name, request] = (limit, (*known, *applied.versions))
            if applied.refusal is not None:
                return applied.refusal
            self._writes.add(controller.name, amount=len(writes))
        for start in range(0, len(plan.notes), LARGEST):
            if start:
                await asyncio.sleep(0)
            await self._recorder.record_all(plan.notes[start : start + LARGEST], controller.reporter)
        return None

    async def _perform(self, plan: Plan) -> bool:
        """Whether another pass would see anything new."""
        return any([await self._effects[effect.name](effect.subject) for effect in plan.effects])

    def _read_depths(self) -> dict[tuple[str, ...], float]:
        return {(name,): float(len(queue)) for name, queue in self._queues.items()}


def _decide_rest(seconds: float) -> float:
    return 0.0 if seconds <= _LONG else min(seconds * _SHARE, _LONGEST_REST)
