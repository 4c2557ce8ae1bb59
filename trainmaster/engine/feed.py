"""Feeds: how a manager learns of changes. A change must be reported only after the view shows it.

Embedded, the view is the store itself and `WatchFeed` on the in-process client suffices: a watch event is never ahead
of it. On a cluster the view is a watch cache, which has its own feed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import Expired, StatusError
from trainmaster.client.contract import Client, WatchOptions
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)


class Feed(Protocol):
    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        """Runs forever. Reports every existing object, then every one that changes or is deleted, at least once
        each."""
        ...


class WatchFeed:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        version = ""
        backoff = Backoff(BackoffPolicy(first=0.1, cap=30.0))
        while True:
            try:
                async with self._client.watch(
                    gvr, "", WatchOptions(resource_version=version, bookmarks=True)
                ) as events:
                    async for event in events:
                        backoff.reset()
                        version = event.object["metadata"].get("resourceVersion", version)
                        if event.type != "BOOKMARK":
                            notice(event.object)
            except Expired:
                version = ""
            except (StatusError, OSError) as error:
                log.warning("watch broke, trying again", extra={"resource": gvr.qualified, "error": str(error)})
                await self._clock.sleep(backoff.next())
            # Yield, so that a server that ends every watch immediately does not block the loop.
            await asyncio.sleep(0)
