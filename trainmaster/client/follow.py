"""Follows one kind through any client: everything that exists, then every change, with list and watch.

For callers that must distinguish changes from deletions, which a `Feed` does not. After a gap everything is listed
again, and the caller gets the complete list, because deletions may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ListOptions, ObjectList, WatchEvent, WatchOptions, WatchStream
from trainmaster.client.view import RestingView
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock

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
    backoff = Backoff(BackoffPolicy(first=0.1, cap=longest_pause))
    while True:
        try:
            page = await client.list(gvr, namespace, ListOptions(label_selector, field_selector))
            await begin(page.items)
            options = WatchOptions(
                label_selector, field_selector, page.resource_version, bookmarks=True, read_only=True
            )
            async with client.watch(gvr, namespace, options) as events:
                async for event in events:
                    backoff.reset()
                    if event.type != "BOOKMARK":
                        await change(event)
        except (StatusError, OSError) as error:
            if trouble is not None:
                trouble(error)
            else:
                log.warning("watch broke, listing again", extra={"resource": gvr.qualified, "error": str(error)})
            await clock.sleep(backoff.next())
        # Yield, so that a server that ends every watch immediately does not block the loop.
        await asyncio.sleep(0)
