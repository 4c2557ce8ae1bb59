"""One run of the server: the store from disk, the registry, the node agent, and in embedded mode the controllers.

In embedded mode the engine is composed as in `app.workloads`: the in-process client, the current view, one transaction
per plan. The faults are crashes before a plan, or after it during its commit, and notices that are late, duplicated or
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.simulation.base import ROOT_CA
from tests.simulation.disk import SimStore
from tests.simulation.faults import CRASH_AFTER, CRASH_BEFORE, EMBEDDED
from tests.simulation.node import SimNode
from tests.simulation.world import ProcessRun, World, get_site
from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver.at_rest import ObjectPacking
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.app.workloads import JOBS
from trainmaster.client.writes import Applied, Write
from trainmaster.controllers.lifecycle.at_rest import RestRules
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.feed import Feed
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import Note
from trainmaster.kit.scopes import Scope

if TYPE_CHECKING:
    from tests.simulation.checking import Checker

_QUIET_SECONDS = 2.0


class Server(ProcessRun):
    def __init__(self, world: World, checker: Checker, crash: Callable[[], None]) -> None:
        super().__init__(world, "server")
        self._crash = crash
        with_history = world.random.random() < 0.7
        self.store = SimStore(world.loop, world.disk, world.draw_commit_time, with_history=with_history)
        self.registry = ObjectRegistry(self.store, world.catalogue, world.clock, world.ids)
        self.registry.state.proves = True
        self.client = LocalClient(self.registry)
        self.view = LocalView(self.registry)
        self.manager: Manager | None = None
        self.answers = False
        self._node = SimNode(world.loop, world.clock, world.machine, world.acting, world.trace, world.random)
        checker.follow(self.store)

    async def run(self) -> None:
        world = self.world
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.registry.running(ROOT_CA))
            if world.weather.mode == EMBEDDED:
                if world.ledger is not None:
                    world.ledger.begin_life(self._crash, self.client.durable)
                self.manager = Manager(
                    world.controllers,
                    view=self.view,
                    feed=UnreliableFeed(world, self.view),
                    apply=self._apply,
                    recorder=ActingRecorder(world, EventRecorder(self.client, world.clock)),
                    clock=world.clock,
                    effects=world.effects,
                    settled=0 if world.weather.drop or world.weather.delay else self.store.settled_revision,
                )
                await stack.enter_async_context(self.manager.running())
            scope = await stack.enter_async_context(Scope("node"))
            scope.spawn_forever(self._node.run(self.client, self.view), name="node")
            if self.manager is not None:
                scope.spawn_forever(self._pack(self.manager), name="pack")
            self.answers = True
            await asyncio.get_running_loop().create_future()

    async def _pack(self, manager: Manager) -> None:
        """Objects are at rest soon here, so that many of them are at the next start."""
        world, names = self.world, {controller.name for controller in JOBS}
        rules = RestRules(self.view, [item for item in world.controllers if item.name in names], world.ledger)
        packing = ObjectPacking(self.registry, world.clock, rules, lambda: manager.is_settled)
        while True:
            await world.clock.sleep(_QUIET_SECONDS)
            await packing.pack(_QUIET_SECONDS)

    def die(self) -> None:
        super().die()
        self.answers = False
        self._node.stop()
        lost = self.store.crash(lands=self.world.random.random() < 0.5)
        self.world.trace.note("server", f"crashes, {lost} writes are lost")

    async def _apply(self, writes: Sequence[Write], controller: str) -> Applied:
        """`engine.apply.apply_in_one` with crashes around it."""
        world = self.world
        faults = [world.strike(get_site(controller, write)) for write in writes]
        if CRASH_BEFORE in faults:
            self._crash()
            raise asyncio.CancelledError
        with world.acting.as_(controller):
            applied = self.client.apply_atomically(writes, field_manager=controller)
        if applied.refusal is not None:
            world.trace.note(controller, f"refused: {applied.refusal.error.message}")
        if CRASH_AFTER in faults:
            self._crash()
            raise asyncio.CancelledError
        return applied


class UnreliableFeed:
    """Delivers notices late, twice, or never, and therefore out of order."""

    def __init__(self, world: World, feed: Feed) -> None:
        self._world = world
        self._feed = feed

    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        world = self._world

        def pass_on(obj: Object) -> None:
            if world.is_unlucky(world.weather.drop):
                world.trace.note("fault", f"notice of {gvr.plural} {obj['metadata']['name']} is dropped")
                return
            for _ in range(2 if world.is_unlucky(world.weather.repeat) else 1):
                delay = world.draw_delay()
                if delay:
                    world.loop.call_later(delay, notice, obj)
                else:
                    notice(obj)

        await self._feed.follow(gvr, pass_on)


class ActingRecorder:
    """The engine's recorder, with a name for the timeline."""

    def __init__(self, world: World, recorder: EventRecorder) -> None:
        self._world = world
        self._recorder = recorder

    async def record(self, note: Note, reporter: str) -> None:
        await self.record_all((note,), reporter)

    async def record_all(self, notes: Sequence[Note], reporter: str) -> None:
        with self._world.acting.as_("events"):
            await self._recorder.record_all(notes, reporter)
