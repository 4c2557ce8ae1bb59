"""A watch cache: the objects of some collections in memory, kept up to date by list and watch.

On a cluster it is the `View` of reconcilers and their feed: `follow` reports a change after the cache shows it. It may
be stale, but never wrong about what it has seen: after any gap (410, a broken list, an unreadable answer) it lists
again and reports the difference, including deletions.

Kinds that a cluster may not serve (PodGroups) are `optional`: the cache is empty until they exist and may be read.
`slim` reduces objects with large parts that are not needed (Secrets of others). Objects are shared and read-only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import list_items
from trainmaster.api.status import Expired, NotFound, StatusError
from trainmaster.client.contract import Client, ListOptions, WatchEvent, WatchOptions
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.scopes import Scope

log = logging.getLogger(__name__)

_PAGE = 500
_WATCH_SECONDS = 300.0
_GRACE_SECONDS = 30.0
"""How long after the server should have ended a watch a dead connection is given up."""

Notice = Callable[[Object], None]
Slim = Callable[[Object], Object]
"""Returns the part of an object to keep, which must include its metadata: the same object, or a smaller one."""


def _key(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def controller_uid(obj: Object) -> str:
    """The uid of the object's controller, or ""."""
    for reference in list_items(obj, "metadata", "ownerReferences"):
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


class Collection:
    """The objects of one kind with indexes."""

    def __init__(self, slim: Slim | None = None, *, optional: bool = False) -> None:
        self.synced = asyncio.Event()
        self.optional = optional
        self.resource_version = ""
        self._slim = slim
        self.notices: list[Notice] = []
        self._namespaces: dict[str, dict[str, Object]] = {}
        self._owned: dict[str, dict[tuple[str, str], Object]] = {}

    def __len__(self) -> int:
        return sum(len(names) for names in self._namespaces.values())

    def find(self, namespace: str, name: str) -> Object | None:
        return self._namespaces.get(namespace, {}).get(name)

    def all(self, namespace: str = "") -> Iterator[Object]:
        """Ordered by namespace and name; "" is all namespaces."""
        for where in (namespace,) if namespace else sorted(self._namespaces):
            names = self._namespaces.get(where, {})
            for name in sorted(names):
                yield names[name]

    def owned(self, namespace: str, uid: str) -> Sequence[Object]:
        found = self._owned.get(uid)
        return [found[key] for key in sorted(found) if key[0] == namespace] if found else ()

    def put(self, obj: Object) -> None:
        if self._slim is not None:
            obj = self._slim(obj)
        key = _key(obj)
        self._unlink(self.find(*key))
        self._namespaces.setdefault(key[0], {})[key[1]] = obj
        owner = controller_uid(obj)
        if owner:
            self._owned.setdefault(owner, {})[key] = obj
        self._notify(obj)

    def remove(self, obj: Object) -> None:
        """`obj` is the last state; removes the cached object with its name."""
        namespace, name = _key(obj)
        names = self._namespaces.get(namespace, {})
        self._unlink(names.pop(name, None))
        if not names:
            self._namespaces.pop(namespace, None)
        self._notify(obj)

    def replace(self, objects: Sequence[Object]) -> None:
        """Applies a new list: puts new and changed objects, removes those that are gone."""
        present = {_key(obj) for obj in objects}
        for old in list(self.all()):
            if _key(old) not in present:
                self.remove(old)
        for obj in objects:
            before = self.find(*_key(obj))
            if before is None or before["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
                self.put(obj)

    def _unlink(self, old: Object | None) -> None:
        if old is None:
            return
        owner = controller_uid(old)
        found = self._owned.get(owner)
        if found is not None:
            found.pop(_key(old), None)
            if not found:
                del self._owned[owner]

    def _notify(self, obj: Object) -> None:
        for notice in self.notices:
            notice(obj)


class WatchCache:
    """Implements `client.view.View` and the engine's feed. Async context manager: entering starts the watches."""

    def __init__(
        self,
        client: Client,
        collections: Sequence[GVR],
        *,
        clock: Clock,
        ids: Ids | None = None,
        namespace: str = "",
        cluster_scoped: Container[GVR] = (),
        optional: Container[GVR] = (),
        slim: Mapping[GVR, Slim] | None = None,
        selectors: Mapping[GVR, str] | None = None,
        field_selectors: Mapping[GVR, str] | None = None,
    ) -> None:
        """`namespace` "" is all; kinds in `cluster_scoped` are always followed completely. `selectors`: for these
        kinds, only objects with such labels (or fields)."""
        self._client = client
        self._clock = clock
        self._ids = ids
        self._namespace = namespace
        self._cluster_scoped = cluster_scoped
        self._selectors = dict(selectors or {})
        self._field_selectors = dict(field_selectors or {})
        self._collections = {
            gvr: Collection((slim or {}).get(gvr), optional=gvr in optional) for gvr in dict.fromkeys(collections)
        }
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        scope = await self._stack.enter_async_context(Scope("cache"))
        for gvr, collection in self._collections.items():
            scope.spawn_forever(self._keep(gvr, collection), name=f"cache.{gvr.qualified}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def wait_synced(self) -> None:
        """Returns once every collection has been listed completely."""
        for collection in self._collections.values():
            await collection.synced.wait()

    def resource_version(self, gvr: GVR) -> str:
        """The version that the cache has reached; for tests and metrics."""
        return self._collections[gvr].resource_version

    def shows(self, gvr: GVR, version: str) -> bool:
        """See `client.view.Lagging`. Versions of one server are compared as numbers; others count as seen."""
        collection = self._collections.get(gvr)
        seen = collection.resource_version if collection is not None else ""
        return not (version.isdecimal() and seen.isdecimal()) or int(seen) >= int(version)

    # View

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return self._collections[gvr].find(namespace, name)

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        found = self._collections[gvr].all(namespace)
        if not labels:
            return list(found)
        wanted = labels.items()
        return [obj for obj in found if wanted <= (obj["metadata"].get("labels") or {}).items()]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return self._collections[gvr].owned(namespace, owner_uid)

    # Feed

    async def follow(self, gvr: GVR, notice: Notice) -> None:
        """Runs forever: reports every existing object, then every one that changes or is deleted, after the cache shows
        it."""
        collection = self._collections[gvr]
        for obj in list(collection.all()):
            notice(obj)
        collection.notices.append(notice)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            collection.notices.remove(notice)

    # List and watch

    async def _keep(self, gvr: GVR, collection: Collection) -> None:
        backoff = Backoff(BackoffPolicy(first=0.1, cap=30.0, jitter=0.3), self._ids)
        while True:
            try:
                if not collection.resource_version:
                    await self._relist(gvr, collection)
                await self._follow_watch(gvr, collection, backoff)
            except Expired:
                collection.resource_version = ""
                # Back off if the server expires every watch immediately.
                await self._clock.sleep(backoff.next())
            except NotFound:
                # The kind is not served (any more).
                self._lose(gvr, collection)
                await self._clock.sleep(backoff.next())
            except (StatusError, OSError, KeyError, ValueError) as error:
                if not isinstance(error, StatusError | OSError):
                    collection.resource_version = ""
                log.warning(
                    "watch broke, trying again",
                    extra={"action": "cache.retry", "resource": gvr.qualified, "error": str(error)},
                )
                if collection.optional and isinstance(error, StatusError) and error.code == 403:
                    collection.synced.set()
                await self._clock.sleep(backoff.next())

    def _lose(self, gvr: GVR, collection: Collection) -> None:
        if collection.optional:
            collection.replace(())
            collection.synced.set()
        else:
            log.warning("the server has no such kind", extra={"action": "cache.unknown", "resource": gvr.qualified})
        collection.resource_version = ""

    def _scope(self, gvr: GVR) -> str:
        return "" if gvr in self._cluster_scoped else self._namespace

    async def _relist(self, gvr: GVR, collection: Collection) -> None:
        objects: list[Object] = []
        token, version = "", ""
        limit, selector, fields = _PAGE, self._selectors.get(gvr, ""), self._field_selectors.get(gvr, "")
        while True:
            try:
                options = ListOptions(selector, fields, limit=limit, continue_token=token)
                page = await self._client.list(gvr, self._scope(gvr), options)
            except Expired:
                if not token:
                    raise
                # The server's snapshot expired between pages: list without paging.
                objects, token, limit = [], "", 0
                continue
            objects += page.items
            version = page.resource_version
            token = page.continue_token
            if not token:
                break
        collection.replace(objects)
        collection.resource_version = version
        collection.synced.set()

    async def _follow_watch(self, gvr: GVR, collection: Collection, backoff: Backoff) -> None:
        options = WatchOptions(
            label_selector=self._selectors.get(gvr, ""),
            field_selector=self._field_selectors.get(gvr, ""),
            resource_version=collection.resource_version,
            bookmarks=True,
            timeout_seconds=_WATCH_SECONDS,
        )
        heard = False
        async with (
            asyncio.timeout(_WATCH_SECONDS + _GRACE_SECONDS),
            self._client.watch(gvr, self._scope(gvr), options) as events,
        ):
            async for event in events:
                heard = True
                backoff.reset()
                _take(collection, event)
        if not heard:
            # Back off if the server ends every watch immediately.
            await self._clock.sleep(backoff.next())


def _take(collection: Collection, event: WatchEvent) -> None:
    obj = event.object
    if event.type == "DELETED":
        collection.remove(obj)
    elif event.type != "BOOKMARK":
        collection.put(obj)
    collection.resource_version = obj["metadata"]["resourceVersion"]
