"""Follows one kind through any client: everything that exists, then every change, with list and watch.

For callers that must distinguish changes from deletions, which a `Feed` does not. After a gap everything is listed
again, and the caller gets the complete list, because deletions may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, ListOptions, WatchEvent, WatchOptions
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

Begin = Callable[[list[Object]], Awaitable[None]]
Change = Callable[[WatchEvent], Awaitable[None]]
Trouble = Callable[[StatusError | OSError], None]


async def follow(
    client: Client,
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
