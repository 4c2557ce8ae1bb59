"""Checks every write to the store, across restarts, and every plan of every reconciler.

It keeps a shadow copy of all objects. After a crash the shadow is discarded with the lost writes, and the disk is
compared with the acknowledged writes (I1) and with the numbering of revisions (I2).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from tests.simulation.disk import Disk, SimStore
from tests.simulation.patching import change_passes
from tests.simulation.sharing import check_binding_plan
from tests.simulation.steps import STEP_CHECKS, V1_BUCKETS, Memory, Step, remember
from tests.simulation.v1_checks import check_v1_plan
from tests.simulation.world import World
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.apiserver import stored
from trainmaster.client.listed import ListedView
from trainmaster.client.view import ContentMissing, View
from trainmaster.client.writes import Create, Delete, Patch, WriteRefusal
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import Plan, ReconcileInSteps
from trainmaster.engine.request import Request
from trainmaster.kit.steps import Steps
from trainmaster.kit.timeline import Now
from trainmaster.store.contract import Event, EventType

_V1_JOBS = {framework.kind: framework.gvr for framework in FRAMEWORKS}
OWNERS = {"TrainJob": TRAIN_JOBS, "JobSet": JOB_SETS, "Job": JOBS, **_V1_JOBS}
_TRAINING = (TRAIN_JOBS, *_V1_JOBS.values())
_STEPPING = (JOBS, PODS)
"""What passes in steps read."""
TOO_BUSY = 2000
TOO_MANY = 1500
UNWATCHED = ("events",)
"""Buckets without checks."""


class Checker:
    def __init__(self, world: World, base: dict[tuple[str, str], Object]) -> None:
        self._world = world
        self._base = base
        self.memory = Memory()
        self.shadow: dict[tuple[str, str], Object] = {}
        self.uids: dict[str, tuple[str, str]] = {}
        self._revision = 0
        self._instant = -1.0
        self._busy = 0
        self.halt: Callable[[], None] = lambda: None
        """Ends all processes, because a loop in which no virtual time passes would never end."""
        self.writes = 0
        """The number of checked writes, across restarts."""

    def follow(self, store: SimStore) -> None:
        """Called when the store starts: checks its writes from now on."""
        self._check_disk(self._world.disk)
        self._load()
        self.memory.forget_after(self._revision)
        store.subscribe(self._see)

    def _load(self) -> None:
        self.shadow = {}
        for bucket, records in self._world.disk.records.items():
            if bucket in UNWATCHED:
                continue
            for name, record in records.items():
                known = self._base.get((bucket, name))
                fresh = known is None or int(known["metadata"]["resourceVersion"]) != record.revision
                self.shadow[bucket, name] = stored.parse(record.value) if fresh or known is None else known
        self.uids = {obj["metadata"]["uid"]: place for place, obj in self.shadow.items()}
        self._revision = self._world.disk.revision

    def _check_disk(self, disk: Disk) -> None:
        """I1 and I2: nothing acknowledged is missing, and revisions have no gap."""
        trace = self._world.trace
        for number, event in enumerate(disk.log, start=disk.base + 1):
            if event.record.revision != number:
                trace.violate("I2", f"revision {number} is missing on disk, {event.record.revision} follows")
                return
        for revision, bucket, name in self._world.acked:
            if revision > disk.revision:
                text = f"the write to {bucket} {name} at revision {revision} was acknowledged and is lost"
                trace.violate("I1", text)
                return

    def _see(self, events: Sequence[Event]) -> None:
        for event in events:
            self._see_one(event)

    def _count_busy(self, what: str) -> None:
        """I9: no endless activity without virtual time passing."""
        now = self._world.loop.now
        if now != self._instant:
            self._instant, self._busy = now, 0
        self._busy += 1
        if self._busy == TOO_BUSY:
            self._world.trace.violate("I9", f"a hot loop: {TOO_BUSY} writes and passes at one moment, last {what}")
            self._world.loop.call_soon(self.halt)

    def _count_writes(self) -> None:
        """I9: a few jobs cause a few hundred writes."""
        self.writes += 1
        if self.writes == TOO_MANY:
            self._world.trace.violate("I9", f"{TOO_MANY} writes, and no end in sight")
            self._world.loop.call_soon(self.halt)

    def _see_one(self, event: Event) -> None:
        world = self._world
        self._count_busy(f"a write to {event.record.bucket}")
        record = event.record
        actor = world.acting.who
        world.trace.note_write(actor, event)
        world.newest[record.bucket] = record.revision
        if record.revision != self._revision + 1:
            world.trace.violate("I2", f"revision {record.revision} follows {self._revision}")
        self._revision = record.revision
        if record.bucket in UNWATCHED:
            return
        self._count_writes()
        place = (record.bucket, record.name)
        before = self.shadow.get(place)
        after = stored.parse(record.value) if event.type is EventType.PUT else None
        step = Step(
            actor,
            record.bucket,
            record.name,
            record.revision,
            before,
            after,
            world.loop.now,
            self.shadow,
            self.uids,
            self.memory,
        )
        remember(step)
        for number, check in STEP_CHECKS:
            message = check(step)
            if message is not None:
                world.trace.violate(number, message)
        self._keep(place, before, after)

    def _keep(self, place: tuple[str, str], before: Object | None, after: Object | None) -> None:
        if after is not None:
            self.shadow[place] = after
            self.uids[after["metadata"]["uid"]] = place
        elif before is not None:
            self.shadow.pop(place, None)
            self.uids.pop(before["metadata"]["uid"], None)

    def wrap(self, controller: Controller) -> Controller:
        """The controller, with checks of its plans."""
        takes_steps = controller.reconcile_in_steps is not None and self._world.weather.large

        def change(inner: ReconcileInSteps) -> ReconcileInSteps:
            def run(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Steps[Plan]:
                self._count_busy(f"a pass of {controller.name}")
                self.memory.timers.look(controller.name, view, request, now.wall, self._world.loop.now)
                self.memory.looks.look(controller.name, view, request)
                # What others write between two steps is left to the next pass.
                seen = (
                    ListedView({gvr: view.list(gvr, request.namespace) for gvr in _STEPPING}) if takes_steps else view
                )
                try:
                    plan = yield from inner(view, request, now, refusals)
                except ContentMissing:
                    # The engine reads the content and repeats the pass.
                    raise
                except Exception as error:
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    text = f"{controller.name} raises for {request}: {error!r} in {where.name} line {where.lineno}"
                    self._world.trace.violate("I14", text)
                    raise
                self._check_pass(controller, seen, request, now, refusals, plan)
                return plan

            return run

        return change_passes(controller, change)

    def _check_pass(
        self,
        controller: Controller,
        view: View,
        request: Request,
        now: Now,
        refusals: Sequence[WriteRefusal],
        plan: Plan,
    ) -> None:
        """`view`: as the pass saw it at its beginning."""
        self._check_plan(controller.name, view, plan)
        if controller.name == "scheduler":
            for message in check_binding_plan(view, plan):
                self._world.trace.violate("I17", message)
        if controller.name in V1_BUCKETS and not refusals:
            self.memory.timers.look_ahead(request, view, controller.kind, plan, now.wall, self._world.loop.now)
            for number, message in check_v1_plan(controller.kind, view, request, plan):
                self._world.trace.violate(number, f"{controller.name} {message}")

    def _check_plan(self, controller: str, view: View, plan: Plan) -> None:
        """No creates for a terminating owner, no changes of terminating objects, and deletes have a uid."""
        trace = self._world.trace
        for write in plan.all_writes:
            if isinstance(write, Create):
                for owner in write.obj["metadata"].get("ownerReferences") or ():
                    gvr = OWNERS.get(owner["kind"])
                    namespace = write.obj["metadata"].get("namespace", "")
                    seen = view.find(gvr, namespace, owner["name"]) if gvr is not None else None
                    if seen is not None and seen["metadata"]["uid"] == owner["uid"] and _is_going(seen):
                        trace.violate("I7", f"{controller} makes {write.gvr.plural} for an owner that is going")
            elif isinstance(write, Patch):
                found = view.find(write.gvr, write.namespace, write.name)
                if found is not None and _is_going(found):
                    trace.violate("I7", f"{controller} patches {write.gvr.plural} {write.name}, which is going")
            elif isinstance(write, Delete):
                self._check_delete(controller, view, write)

    def _check_delete(self, controller: str, view: View, write: Delete) -> None:
        if not write.uid:
            text = f"{controller} deletes {write.gvr.plural} {write.name} without naming its uid"
            self._world.trace.violate("I7", text)
        found = view.find(write.gvr, write.namespace, write.name) if write.gvr in _TRAINING else None
        if found is not None and _is_going(found):
            self._world.trace.violate("I7", f"{controller} deletes {found['kind']} {write.name} a second time")


def _is_going(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]
