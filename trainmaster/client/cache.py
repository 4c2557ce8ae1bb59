"""A watch cache: the objects of some collections in memory, kept up to date by list and watch.

On a cluster it is the `View` of reconcilers and their feed: `follow` reports a change after the cache shows it. It may
be stale, but never wrong about what it has seen: after any gap (410, a broken list, an unreadable answer) it lists
again and reports the difference, including deletions. Each kind has one watch, or one in each namespace.

Kinds that a cluster may not serve (PodGroups) are `optional`: the cache is empty until they exist and may be read.
`slim` reduces objects with large parts that are not needed. Of kinds in `contents` only the metadata is followed; of
the objects that the function selects, the content is read by name when a pass needs it, or known from an own write.
Objects are shared and read-only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client import collection as memory
from trainmaster.client.collection import Notice, Slim, is_older, is_partial
from trainmaster.client.contract import Client
from trainmaster.client.reflector import USUAL, Reflector, WatchHabit, WatchScope
from trainmaster.client.view import ContentMissing, ContentUnavailable, View
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.scopes import Scope

ALL = ("",)


class WatchCache:
    """Implements `client.view.View` and the engine's feed. Async context manager: entering starts the watches."""

    def __init__(
        self,
        client: Client,
        collections: Sequence[GVR],
        *,
        clock: Clock,
        ids: Ids | None = None,
        namespaces: Sequence[str] = ALL,
        cluster_scoped: Collection[GVR] = (),
        optional: Collection[GVR] = (),
        slim: Mapping[GVR, Slim] | None = None,
        contents: Mapping[GVR, Callable[[Object], bool]] | None = None,
        habits: Mapping[GVR, WatchHabit] | None = None,
    ) -> None:
        """`namespaces`: () or "" is all; kinds in `cluster_scoped` are always followed completely."""
        self._client = client
        self._contents = dict(contents or {})
        gvrs = list(dict.fromkeys(collections))
        self._collections = {gvr: memory.Collection((slim or {}).get(gvr)) for gvr in gvrs}
        self._watches: dict[GVR, dict[str, Reflector]] = {}
        for gvr, collection in self._collections.items():
            scopes = [
                WatchScope(
                    gvr,
                    namespace,
                    gvr in optional,
                    gvr in self._contents,
                    (habits or {}).get(gvr, USUAL),
                )
                for namespace in (ALL if gvr in cluster_scoped else dict.fromkeys(namespaces) or ALL)
            ]
            self._watches[gvr] = {one.namespace: Reflector(client, one, collection, clock, ids) for one in scopes}
        self._whole = _WholeView(self)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        scope = await self._stack.enter_async_context(Scope("cache"))
        for watch in self.watches:
            name = f"cache.{watch.scope.gvr.qualified}"
            scope.spawn_forever(watch.run(), name=f"{name}.{watch.scope.namespace}" if watch.scope.namespace else name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def watches(self) -> Sequence[Reflector]:
        """For probes and metrics."""
        return [watch for watches in self._watches.values() for watch in watches.values()]

    async def wait_synced(self) -> None:
        """Returns once every collection has been listed completely."""
        for watch in self.watches:
            await watch.synced.wait()

    def resource_version(self, gvr: GVR, namespace: str = "") -> str:
        """The version that the cache has reached; for tests and metrics."""
        watch = self._find_watch(gvr, namespace)
        return "" if watch is None else watch.resource_version

    def shows(self, gvr: GVR, namespace: str, version: str) -> bool:
        """See `client.view.LaggingView`. What is not followed counts as seen."""
        seen = self.resource_version(gvr, namespace)
        return not is_older(seen, version)

    def _find_watch(self, gvr: GVR, namespace: str) -> Reflector | None:
        watches = self._watches.get(gvr, {})
        return watches.get("") or watches.get(namespace)

    # View

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        """Of kinds in `contents`, perhaps only the metadata."""
        return self._collections[gvr].find(namespace, name)

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        found = self._collections[gvr].all(namespace)
        if not labels:
            return list(found)
        wanted = labels.items()
        return [obj for obj in found if wanted <= (obj["metadata"].get("labels") or {}).items()]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return self._collections[gvr].owned(namespace, owner_uid)

    # Contents

    @property
    def whole(self) -> View:
        """See `client.view.PartialView`."""
        return self._whole

    def find_whole(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        """Raises ContentMissing if the object has a content of interest that is not known."""
        found = self.find(gvr, namespace, name)
        if found is not None and is_partial(found) and self._contents[gvr](found):
            raise ContentMissing(gvr, namespace, name)
        return found

    async def load(self, missing: ContentMissing) -> None:
        gvr, namespace, name = missing.gvr, missing.namespace, missing.name
        try:
            obj = await self._client.get(gvr, name, namespace)
        except NotFound:
            found = self.find(gvr, namespace, name)
            if found is not None:
                self._collections[gvr].remove(found, silently=True)
            return
        except (StatusError, OSError) as error:
            raise ContentUnavailable(f"{gvr.plural} {namespace}/{name} cannot be read: {error}") from error
        found = self.find(gvr, namespace, name)
        if found is not None and not is_older(_get_version(obj), _get_version(found)):
            self._collections[gvr].put(obj, silently=True)

    def learn(self, gvr: GVR, obj: Object) -> None:
        """An object as the server stored it for an own write. It is known before the watch reports it, or not at all:
        a watch that is further may have reported its deletion."""
        if gvr not in self._contents or not self._contents[gvr](obj):
            return
        meta = obj["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        found = self.find(gvr, *place)
        is_news = is_older(self.resource_version(gvr, place[0]), _get_version(obj))
        if is_news or (found is not None and _get_version(found) == _get_version(obj)):
            self._collections[gvr].put(obj, silently=True)

    # Feed

    async def follow(self, gvr: GVR, notice: Notice) -> None:
        """Runs forever: reports every existing object, then every one that changes or is deleted, after the cache shows
        it."""
        for obj in self._collections[gvr].all():
            notice(obj)
        unsubscribe = self.subscribe(gvr, notice)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            unsubscribe()

    def subscribe(self, gvr: GVR, notice: Notice) -> Callable[[], None]:
        """Reports changes and deletions until the result is called."""
        notices = self._collections[gvr].notices
        notices.append(notice)

        def unsubscribe() -> None:
            if notice in notices:
                notices.remove(notice)

        return unsubscribe


class _WholeView:
    """The cache for one pass."""

    def __init__(self, cache: WatchCache) -> None:
        self.find = cache.find_whole
        self.list = cache.list
        self.owned = cache.owned


def _get_version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
