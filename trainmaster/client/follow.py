"""Following one kind through any client: everything that exists, then every change, with list and watch as upstream.

For parts that need the difference between "changed" and "gone", which a `Feed` does not tell. After a gap the whole is
listed again: what is missing then went unseen, and the follower is told the whole, not the difference.
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
    """Runs for ever; `namespace` "" is all. `begin` gets all there is, at the start and after every gap; `change` what
    comes after it, to be read and not changed. `trouble` hears of a broken watch in place of the log, and raises what
    should end this. `longest_pause`: seconds between tries."""
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
        # A server that ends every watch at once must not make this a tight loop.
        await asyncio.sleep(0)
