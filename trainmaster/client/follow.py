"""Follows one kind through any client: everything that exists, then every change, with list and watch.

For callers that must distinguish changes from deletions, which a `Feed` does not. After a gap everything is listed
again, and the caller gets the complete list, because deletions may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ListOptions, ObjectList, WatchEvent, WatchOptions, WatchStream
from trainmaster.client.view import RestingView
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope

log = logging.getLogger(__name__)

Begin = Callable[[list[Object]], Awaitable[None]]
Change = Callable[[WatchEvent], Awaitable[None]]
Trouble = Callable[[StatusError | OSError], None]


class ListWatch(Protocol):
    """The part of a client that is needed here."""

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ...) -> ObjectList: ...

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = ...) -> WatchStream: ...


class ActiveObjects:
    """A client that does not list objects at rest. Ignores selectors of lists."""

    def __init__(
        self, client: ListWatch, view: RestingView, is_wanted: Callable[[Object], bool] = lambda obj: True
    ) -> None:
        self.watch = client.watch
        self._view = view
        self._is_wanted = is_wanted

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions | None = None) -> ObjectList:
        page = await self._view.list_active(gvr, namespace)
        return ObjectList([item for item in page.items if self._is_wanted(item)], page.resource_version)


class _Followed(NamedTuple):
    gvr: GVR
    namespace: str
    field_selector: str
    label_selector: str


_Told: TypeAlias = list[Object] | WatchEvent | StatusError | OSError
_Tell: TypeAlias = Callable[[_Told], Awaitable[None]]


class SharesFollows:
    """A client for which `follow` lists and watches once for all who follow the same: one connection instead of one for
    each. A mixin. Everybody gets the same objects."""

    def __init__(self) -> None:
        self._followed: dict[_Followed, _SharedFollow] = {}

    def get_shared(self, followed: _Followed) -> _SharedFollow:
        return self._followed.setdefault(followed, _SharedFollow())


class _SharedFollow:
    """One of the followers lists and watches, and tells the others; when it leaves, another one begins anew."""

    def __init__(self) -> None:
        self._leading = asyncio.Lock()
        self._followers: list[asyncio.Queue[_Told]] = []
        self._objects: dict[str, Object] | None = None
        """By uid; None while nobody has listed them."""

    async def lead(self, client: ListWatch, clock: Clock, followed: _Followed, longest_pause: float) -> None:
        async with self._leading:
            try:
                await _list_and_watch(client, clock, followed, self._tell, longest_pause)
            finally:
                self._objects = None

    @contextmanager
    def joined(self) -> Iterator[asyncio.Queue[_Told]]:
        told: asyncio.Queue[_Told] = asyncio.Queue()
        if self._objects is not None:
            told.put_nowait(list(self._objects.values()))
        self._followers.append(told)
        try:
            yield told
        finally:
            self._followers.remove(told)

    async def _tell(self, told: _Told) -> None:
        if isinstance(told, list):
            self._objects = {obj["metadata"]["uid"]: obj for obj in told}
        elif isinstance(told, WatchEvent) and self._objects is not None:
            uid = told.object["metadata"]["uid"]
            if told.type == "DELETED":
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = told.object
        for follower in self._followers:
            follower.put_nowait(told)


async def follow(
    client: ListWatch,
    clock: Clock,
    gvr: GVR,
    begin: Begin,
    change: Change,
    *,
    namespace: str = "",
    field_selector: str = "",
    label_selector: str = "",
    trouble: Trouble | None = None,
    longest_pause: float = 30.0,
) -> NoReturn:
    """Runs forever; `namespace` "" is all. `begin` gets all objects, at the start and after every gap; `change` gets
    later changes, read-only. `trouble` is called when a watch breaks, instead of logging, and can raise to stop.
    `longest_pause`: maximum seconds between attempts."""

    async def take(told: _Told) -> None:
        if isinstance(told, list):
            await begin(told)
        elif isinstance(told, WatchEvent):
            await change(told)
        elif trouble is not None:
            trouble(told)
        else:
            log.warning("watch broke, listing again", extra={"resource": gvr.qualified, "error": str(told)})

    followed = _Followed(gvr, namespace, field_selector, label_selector)
    if not isinstance(client, SharesFollows):
        await _list_and_watch(client, clock, followed, take, longest_pause)
    shared = client.get_shared(followed)
    async with Scope("follow") as scope:
        with shared.joined() as news:
            scope.spawn(shared.lead(client, clock, followed, longest_pause), name="follow.lead")
            while True:
                await take(await news.get())


async def _list_and_watch(
    client: ListWatch, clock: Clock, followed: _Followed, tell: _Tell, longest_pause: float
) -> NoReturn:
    gvr, namespace, field_selector, label_selector = followed
    backoff = Backoff(BackoffPolicy(first=0.1, cap=longest_pause))
    while True:
        try:
            page = await client.list(gvr, namespace, ListOptions(label_selector, field_selector))
            await tell(page.items)
            options = WatchOptions(
                label_selector, field_selector, page.resource_version, bookmarks=True, read_only=True
            )
            async with client.watch(gvr, namespace, options) as events:
                async for event in events:
                    backoff.reset()
                    if event.type != "BOOKMARK":
                        await tell(event)
        except (StatusError, OSError) as error:
            await tell(error)
            await clock.sleep(backoff.next())
        # Yield, so that a server that ends every watch immediately does not block the loop.
        await asyncio.sleep(0)
