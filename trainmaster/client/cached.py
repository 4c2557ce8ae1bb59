"""A watch cache as the source of `client.follow`: whoever follows objects needs no watch of his own.

The cache survives gaps by itself and reports deletions that happened in them, so a watch of this source never ends.
Objects are shared and read-only, and as slim as the cache keeps them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from trainmaster.api.meta import GVR, Object
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import ListOptions, ObjectList, WatchEvent, WatchOptions


class CachedObjects:
    """Implements `client.follow.ListWatch` for one follower of each kind. Selectors are ignored."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self._watches: dict[tuple[GVR, str], CachedWatch] = {}

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions | None = None) -> ObjectList:
        """Changes are collected from now on; the next `watch` of the kind returns them."""
        await self._cache.wait_synced()
        before = self._watches.get((gvr, namespace))
        if before is not None:
            before.close()
        self._watches[gvr, namespace] = CachedWatch(self._cache, gvr, namespace)
        return ObjectList(list(self._cache.list(gvr, namespace)), "")

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions | None = None) -> CachedWatch:
        return self._watches[gvr, namespace]


class CachedWatch:
    """Implements `client.contract.WatchStream`."""

    def __init__(self, cache: WatchCache, gvr: GVR, namespace: str) -> None:
        self._cache = cache
        self._gvr = gvr
        self._namespace = namespace
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.close = cache.subscribe(gvr, self._notice)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        return await self._events.get()

    def _notice(self, obj: Object) -> None:
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        if self._namespace in ("", namespace):
            is_gone = self._cache.find(self._gvr, namespace, meta["name"]) is None
            self._events.put_nowait(WatchEvent("DELETED" if is_gone else "MODIFIED", obj))
