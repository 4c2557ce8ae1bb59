"""Access to the server from outside, for users and for the operator, with faults.

`RemoteClient` is the in-process client behind a simulated network: calls take time, wait for the server, fail if it
crashes, and return only durable results. Watches deliver durable events late, and may break.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.simulation.faults import CRASH_AFTER, CRASH_BEFORE, LOST_ANSWER, REFUSED, STALE
from tests.simulation.lagging import LaggingView
from tests.simulation.server import Server, UnreliableFeed
from tests.simulation.world import ProcessRun, World, get_site
from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, NODES, PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICES
from trainmaster.apiserver.local import LocalClient, LocalWatch
from trainmaster.apiserver.stored import bucket_of
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import (
    DeleteOptions,
    ListOptions,
    ObjectList,
    PatchType,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)
from trainmaster.client.writes import Applied, Create, Delete, Patch, Write, apply_in_order
from trainmaster.engine.controller import Controller
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.kit.scopes import Scope
from trainmaster.operator.caching import is_ours
from trainmaster.store.contract import StoreError

T = TypeVar("T")
FindServer = Callable[[], Server | None]


class RemoteClient(LocalClient):
    """`crash`: crashes the process of this client; without it, its writes have no faults."""

    def __init__(
        self, world: World, get_server: FindServer, who: str, *, crash: Callable[[], None] | None = None
    ) -> None:
        self._world = world
        self._find = get_server
        self._who = who
        self._crash = crash
        self.stale: Callable[[], bool] = lambda: False

    async def _reach(self) -> Server:
        """The server, after the network delay. ConnectionError if it is down."""
        await asyncio.sleep(self._world.draw_latency())
        server = self._find()
        if server is None or not server.answers:
            raise ConnectionError("nobody answers")
        return server

    async def _ask(self, server: Server, call: Awaitable[T]) -> T:
        """The response, when it is durable."""
        with self._world.acting.as_(self._who):
            answer = await call
        try:
            await server.store.durable(server.store.revision)
        except StoreError:
            raise ConnectionError("the connection broke before the answer came") from None
        await asyncio.sleep(self._world.draw_latency())
        return answer

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        server = await self._reach()
        return await self._ask(server, server.client.get(gvr, name, namespace, subresource=subresource))

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions | None = None) -> ObjectList:
        server = await self._reach()
        return await self._ask(server, server.client.list(gvr, namespace, options))

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions | None = None) -> LateWatch:  # type: ignore[override]  # the same protocol
        return LateWatch(self._world, self._reach, gvr, namespace, options or WatchOptions())

    async def create(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
        options: WriteOptions | None = None,
    ) -> Object:
        server = await self._reach()
        place = {"subresource": subresource, "name": name}
        call = partial(server.client.create, gvr, obj, namespace, **place, options=options)
        return await self._write(server, Create(gvr, obj), call)

    async def update(
        self, gvr: GVR, obj: Object, namespace: str = "", *, subresource: str = "", options: WriteOptions | None = None
    ) -> Object:
        server = await self._reach()
        call = partial(server.client.update, gvr, obj, namespace, subresource=subresource, options=options)
        return await self._write(server, Patch(gvr, namespace, obj["metadata"]["name"], {}, subresource), call)

    async def patch(
        self,
        gvr: GVR,
        name: str,
        patch_type: PatchType,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Object:
        server = await self._reach()
        send = server.client.patch
        call = partial(send, gvr, name, patch_type, patch, namespace, subresource=subresource, options=options)
        return await self._write(server, Patch(gvr, namespace, name, {}, subresource), call)

    async def delete(self, gvr: GVR, name: str, namespace: str = "", options: DeleteOptions | None = None) -> Object:
        server = await self._reach()
        call = partial(server.client.delete, gvr, name, namespace, options)
        return await self._write(server, Delete(gvr, namespace, name), call)

    async def durable(self, revision: int) -> None:
        """Nothing to wait for: responses are durable."""

    async def _write(self, server: Server, write: Write, call: Callable[[], Awaitable[Object]]) -> Object:
        world = self._world
        site = get_site(self._who, write)
        fault = world.strike(site) if self._crash is not None else ""
        if fault in (CRASH_BEFORE, LOST_ANSWER) and not isinstance(write, Create) and world.random.random() < 0.5:
            world.late.append(world.loop.spawn(self._land_late(server, write, call), group=None, name="late write"))
            if fault == CRASH_BEFORE:
                self._die()
            raise ConnectionError("the connection broke before the request arrived")
        if fault in (CRASH_BEFORE, REFUSED):
            if fault == CRASH_BEFORE:
                self._die()
            raise _draw_refusal(world, write)
        if self._crash is not None and self.stale():
            world.count(site, STALE)
        before = server.store.revision
        with world.acting.as_(self._who):
            answer = await call()
        if fault == CRASH_AFTER:
            self._die()
        revision = server.store.revision
        try:
            await server.store.durable(revision)
        except StoreError:
            raise ConnectionError("the connection broke before the answer came") from None
        await asyncio.sleep(world.draw_latency())
        if fault == LOST_ANSWER:
            raise ConnectionError("the answer got lost")
        if self._crash is None and revision > before:
            world.acked.append((revision, write.gvr.plural, _get_name(write)))
        return answer

    async def _land_late(self, server: Server, write: Write, call: Callable[[], Awaitable[Object]]) -> None:
        """Delivers a request late, after its sender crashed or timed out."""
        world = self._world
        await asyncio.sleep(world.random.random() * 8.0)
        if not server.answers or world.calm:
            return
        world.trace.note("fault", f"a late write arrives: {get_site(self._who, write)}")
        try:
            # With another actor name, because the sender's timing was checked when it was sent.
            with world.acting.as_(f"late {self._who}"):
                await call()
        except status.StatusError as error:
            world.trace.note(self._who, f"late, refused: {error.message}")

    def _die(self) -> None:
        assert self._crash is not None
        self._crash()
        raise asyncio.CancelledError


def _get_name(write: Write) -> str:
    return write.obj["metadata"].get("name", "") if isinstance(write, Create) else write.name


def _draw_refusal(world: World, write: Write) -> status.StatusError:
    if isinstance(write, Create) or world.random.random() < 0.2:
        return world.random.choice((status.too_many_requests("slow down"), status.unavailable("try again")))
    return status.conflict(write.gvr, write.name)


class LateWatch:
    """A watch over the network: durable events, late, in order; it may break at any of them."""

    def __init__(
        self,
        world: World,
        reach: Callable[[], Awaitable[Server]],
        gvr: GVR,
        namespace: str,
        options: WatchOptions,
    ) -> None:
        self._world = world
        self._reach = reach
        self._gvr = gvr
        self._namespace = namespace
        self._options = options
        self._watch: LocalWatch | None = None
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        server = self._server = await self._reach()
        kind = server.registry.catalogue.find(self._gvr)
        assert kind is not None
        frames = partial(server.registry.watch, kind, self._namespace, self._options, durable=True)
        self._watch = LocalWatch(frames, metadata_only=self._options.metadata_only)
        await self._watch.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            await self._watch.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        assert self._watch is not None and self._server is not None, "enter the watch first"
        world = self._world
        try:
            event = await anext(self._watch)
        except StoreError:
            raise ConnectionError("the server is gone") from None
        if self._server.group.dead:
            raise ConnectionError("the server is gone")
        delay = world.draw_delay()
        if world.is_unlucky(world.weather.stall):
            delay += world.random.random() * 8.0
            world.trace.note("fault", f"the watch of {self._gvr.plural} stalls for {delay:.3f} s")
        if delay:
            await asyncio.sleep(delay)
        if world.is_unlucky(world.weather.cut):
            world.trace.note("fault", f"the watch of {self._gvr.plural} breaks")
            raise world.random.choice((ConnectionError("cut"), status.too_old(1, 2)))
        return event


class Operator(ProcessRun):
    """One run of the controllers outside of the server: ordered plans, lagging views.

    Those that also run on clusters use a watch cache; the others use a lagging view (`lagging`).
    """

    def __init__(self, world: World, get_server: FindServer, crash: Callable[[], None]) -> None:
        super().__init__(world, "operator")
        self._find = get_server
        self._crash = crash
        self._clients = {
            item.name: RemoteClient(world, get_server, item.name, crash=crash) for item in world.controllers
        }
        watched = dict.fromkeys([*(source.gvr for item in world.controllers for source in item.sources), *_ALSO_READ])
        self._gvrs: Sequence[GVR] = tuple(gvr for gvr in watched if world.catalogue.find(gvr) is not None)

    async def run(self) -> None:
        world = self.world
        abroad = [item for item in world.controllers if item.name in world.cluster_controllers]
        at_home = [item for item in world.controllers if item.name not in world.cluster_controllers]
        client = RemoteClient(world, self._find, "operator")
        if world.ledger is not None:
            world.ledger.begin_life(self._crash, client.durable)
        async with (
            Scope("operator") as scope,
            WatchCache(client, self._gvrs, clock=world.clock, ids=world.ids, contents={CONFIG_MAPS: is_ours}) as cache,
        ):
            await cache.wait_synced()
            past = LaggingView(world, self._gvrs)
            scope.spawn_forever(past.run(), name="operator.view")
            for name, item in self._clients.items():
                item.stale = (
                    (lambda: self._is_stale(cache)) if name in world.cluster_controllers else (lambda: past.is_stale)
                )
            async with self._build(abroad, cache).running(), self._build(at_home, past).running():
                await asyncio.get_running_loop().create_future()

    def _build(self, controllers: Sequence[Controller], view: WatchCache | LaggingView) -> Manager:
        world = self.world
        events = RemoteClient(world, self._find, "events")
        return Manager(
            controllers,
            view=view,
            feed=UnreliableFeed(world, view),
            apply=partial(self._apply, view),
            recorder=EventRecorder(events, world.clock),
            clock=world.clock,
            effects=world.effects,
        )

    async def _apply(self, view: WatchCache | LaggingView, writes: Sequence[Write], controller: str) -> Applied:
        learn = view.learn if isinstance(view, WatchCache) else None
        applied = await apply_in_order(self._clients[controller], writes, field_manager=controller, learn=learn)
        if applied.refusal is not None:
            self.world.trace.note(controller, f"refused: {applied.refusal.error.message}")
        return applied

    def _is_stale(self, cache: WatchCache) -> bool:
        """Whether the cache is behind the store."""
        newest = self.world.newest
        return any(int(cache.resource_version(gvr) or 0) < newest.get(bucket_of(gvr), 0) for gvr in self._gvrs)

    def die(self) -> None:
        super().die()
        self.world.trace.note("operator", "crashes")


_ALSO_READ = (SERVICES, CONFIG_MAPS, SECRETS, PERSISTENT_VOLUME_CLAIMS, NODES)
"""Kinds that reconcilers read without being triggered by them."""
