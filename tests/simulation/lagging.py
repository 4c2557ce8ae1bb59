"""A view that lags by some revisions, for reconcilers that run only in embedded mode.

The Job and JobSet controllers and the scheduler never run on other clusters, and rely on a view that was a state of the
store at some time. This one is, but late: it follows the disk write by write, with a delay from `FaultProfile`. (The
TrainJob controller uses a real watch cache.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tests.simulation.world import World
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import NAMESPACES
from trainmaster.apiserver import stored
from trainmaster.client.collection import Collection
from trainmaster.store.contract import EventType


class LaggingView:
    def __init__(self, world: World, gvrs: Sequence[GVR]) -> None:
        self._world = world
        self._collections = {gvr: Collection() for gvr in gvrs}
        self._by_bucket = {stored.bucket_of(gvr): collection for gvr, collection in self._collections.items()}
        # It shows no namespaces: here they belong to no tenant and never change, and following them would only change
        # the random sequence of a seed.
        self._collections.setdefault(NAMESPACES, Collection())
        self._position = len(world.disk.log)
        self.revision = world.disk.revision
        for bucket, collection in self._by_bucket.items():
            for record in world.disk.records.get(bucket, {}).values():
                collection.put(stored.parse(record.value))

    @property
    def is_stale(self) -> bool:
        """Whether it is behind the store, for the kinds that it shows."""
        return any(self._world.newest.get(bucket, 0) > self.revision for bucket in self._by_bucket)

    async def run(self) -> None:
        """Follows the disk until cancelled."""
        world = self._world
        disk = world.disk
        while True:
            while self._position >= len(disk.log):
                await disk.wait()
            await asyncio.sleep(self._draw_lag())
            # After a wait, all pending writes arrive at once, or some of them.
            count = world.random.randint(1, len(disk.log) - self._position) if not world.calm else len(disk.log)
            for event in disk.log[self._position : self._position + count]:
                self._position += 1
                self.revision = event.record.revision
                collection = self._by_bucket.get(event.record.bucket)
                if collection is None:
                    continue
                obj = stored.parse(event.record.value)
                if event.type is EventType.PUT:
                    collection.put(obj)
                else:
                    collection.remove(obj)

    def _draw_lag(self) -> float:
        world = self._world
        lag = 0.0005 + world.draw_delay()
        if world.is_unlucky(world.weather.stall):
            lag += world.random.random() * 8.0
            world.trace.note("fault", f"the view stalls for {lag:.3f} s")
        return lag

    def shows(self, gvr: GVR, namespace: str, version: str) -> bool:
        return not version or self.revision >= int(version)

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return self._collections[gvr].find(namespace, name)

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        wanted = (labels or {}).items()
        found = self._collections[gvr].all(namespace)
        return [obj for obj in found if wanted <= (obj["metadata"].get("labels") or {}).items()]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return self._collections[gvr].owned(namespace, owner_uid)

    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        collection = self._collections[gvr]
        for obj in list(collection.all()):
            notice(obj)
        collection.notices.append(notice)
        await asyncio.get_running_loop().create_future()
